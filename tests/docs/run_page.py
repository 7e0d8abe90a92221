"""Runs the code blocks of one page, in order: python run_page.py PAGE.md

- `python` blocks share one namespace, as if typed one after the other.
- Of `bash` blocks, the lines that start with `agentgym` are run. `agentgym train` is
  given few episodes and tasks where it names no number: what is tested is that the
  page works, not how well the agent gets.
- A block after `<!-- not run: reason -->` is left out.
- A `python` block after `<!-- file: path -->` must equal that file of the project. It
  is not run but saved under the file's name, for later blocks to use.

The current folder is where the blocks find themselves. Exits with 1 at the first block
that fails, naming its line.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SMALL = {"--episodes": "512", "--eval-tasks": "50", "--heldout-tasks": "50"}

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|file): (?P<what>[^\n]*?) -->\n\s*?)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block, and what the page says about it."""

    language: str
    code: str
    line: int
    mark: str
    what: str


def blocks(text: str) -> Iterator[Block]:
    """All fenced blocks of a page that name their language."""
    for match in _BLOCK.finditer(text):
        yield Block(
            match["language"],
            match["code"],
            text.count("\n", 0, match.start("code")) + 1,
            match["mark"] or "",
            match["what"] or "",
        )


def commands(block: Block) -> Iterator[list[str]]:
    """The `agentgym` lines of a bash block, as this interpreter runs them."""
    joined = block.code.replace("\\\n", " ")
    for line in joined.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["agentgym"]:
            continue
        if words[1:2] == ["train"]:
            for option, value in _SMALL.items():
                words += [] if option in words else [option, value]
        yield [sys.executable, "-m", "agentgym", *words[1:]]


def run(page: Path, root: Path) -> None:
    """Runs a page's blocks.

    Raises:
        AssertionError: If a block differs from the file it shows, or a command fails.
    """
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}:{block.line}"
        if block.mark == "not run":
            continue
        if block.mark == "file":
            file = root / block.what
            assert block.code == file.read_text(encoding="utf-8"), (
                f"{where} differs from {block.what}"
            )
            Path(file.name).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            print(f"{where}: python", flush=True)
            # Blank lines in front make tracebacks name the page's own lines.
            code = "\n" * (block.line - 1) + block.code
            exec(compile(code, str(page), "exec"), namespace)
        elif block.language == "bash":
            for command in commands(block):
                print(f"{where}: agentgym {shlex.join(command[3:])}", flush=True)
                done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
                assert done.returncode == 0, f"{where}: exit code {done.returncode}"


if __name__ == "__main__":
    sys.path.insert(0, "")
    try:
        run(Path(sys.argv[1]), Path(__file__).parents[2])
    except Exception:
        traceback.print_exc()
        sys.exit(1)
