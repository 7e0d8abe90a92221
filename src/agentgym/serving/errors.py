"""What goes wrong with a request, as OpenAI's clients expect to be told."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An answer that is no completion: a status and one clear sentence.

    Attributes:
        status: Of HTTP. Clients try again after 408, 409, 429 and 5xx, not after the
            others.
        kind: OpenAI's `type`.
        param: The field of the request that is wrong.
        code: A name for the mistake that programs can compare.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}

    def to_dict(self) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


def invalid(
    message: str, param: str | None = None, code: str | None = None
) -> ApiError:
    """A request that can never be answered, however often it is sent."""
    return ApiError(400, message, param=param, code=code)
