"""Errors in the format that OpenAI's clients expect."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An error response: a status and a one-sentence message.

    Attributes:
        status: HTTP status. Clients retry after 408, 409, 429 and 5xx only.
        kind: OpenAI's `type`.
        param: The invalid field of the request.
        code: A machine-readable name of the error.
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
        """The response body."""
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
    """A 400 error: the request is invalid, retrying won't help."""
    return ApiError(400, message, param=param, code=code)
