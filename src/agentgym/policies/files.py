"""What policies share on disk: facts as JSON beside arrays as safetensors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from agentgym.errors import FormatError
from agentgym.utils.files import atomic_write_bytes


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The two files of a kind of policy.

    Attributes:
        what: What they contain, as messages call it.
        format: Marks them as such.
        version: Of the format.
        facts: Name of the JSON file.
        arrays: Name of the safetensors file.
    """

    what: str
    format: str
    version: int
    facts: str
    arrays: str

    def write(
        self, folder: Path, facts: Mapping[str, Any], arrays: dict[str, Any]
    ) -> None:
        """Writes both into an existing folder."""
        about = {"format": self.format, "version": self.version, **facts}
        atomic_write_bytes(folder / self.arrays, save(arrays))
        atomic_write_bytes(folder / self.facts, json.dumps(about, indent=1).encode())

    @contextlib.contextmanager
    def read(self, folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Gives the facts and the arrays.

        Raises:
            FormatError: The files are missing, damaged or from another version, or
                using what they contain failed.
        """
        try:
            about = json.loads((folder / self.facts).read_text(encoding="utf-8"))
            if (about.get("format"), about.get("version")) != (
                self.format,
                self.version,
            ):
                raise FormatError(
                    f"{folder} doesn't contain a {self.what} of format version "
                    f"{self.version}. Train it again with this version of AgentGym."
                )
            yield about, load_file(folder / self.arrays)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"Cannot read the {self.what} in {folder} ({type(error).__name__}: "
                f"{error}). Restore its files, or train it again."
            ) from None
