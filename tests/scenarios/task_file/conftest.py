"""Files of tasks, for tests; what their lines hold is in `task_lines`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from task_lines import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of lines: texts as they are, all else as JSON."""

    def write(*lines: Any, name: str = "tasks.jsonl") -> Path:
        path = tmp_path / name
        texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write
