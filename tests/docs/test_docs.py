"""The code on every page works, and links between pages lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("run_page.py")
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
)
# Those that need a framework are run by tests/integrations/test_examples.py.
_FRAMEWORK = re.compile(r"^from (langchain|autogen_agentchat|crewai)\b", re.MULTILINE)
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if path.name != "custom_scenario.py" and not _FRAMEWORK.search(path.read_text())
)

_LINK = re.compile(r"\[[^\]]+\]\((?!https?:|#)([^)#\s]+)(?:#([^)\s]+))?\)")


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "AGENTGYM_HOME": str(folder / "home"), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_code_blocks(page: Path, tmp_path: Path) -> None:
    _run([str(RUNNER), str(page)], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links(page: Path) -> None:
    for target, heading in _LINK.findall(page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve()
        assert file.exists(), f"{page.name} links to {target}"
        if heading:
            assert heading in _headings(file), f"{page.name}: {target}#{heading}"


@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_examples(example: Path, tmp_path: Path) -> None:
    source = example.read_text(encoding="utf-8")
    options = ["--episodes", "512"] if '"--episodes"' in source else []
    assert _run([str(example), *options], tmp_path)


def test_the_custom_scenario_is_learned(tmp_path: Path) -> None:
    said = _run([str(ROOT / "examples" / "custom_scenario.py")], tmp_path)
    found = re.search(r"(\d+)% -> (\d+)%", said)
    assert found, said
    before, after = map(int, found.groups())
    assert after >= before + 30


def test_a_page_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError, match=r"line 8"):
        _run([str(RUNNER), str(page)], tmp_path)


def _headings(file: Path) -> set[str]:
    text = file.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
