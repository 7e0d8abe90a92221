from __future__ import annotations

import pytest

from agentgym.serving.patterns import LONGEST, is_safe


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        r"^A-\d+$",
        r"^[A-Z]{2,4}-\d{3,6}$",
        r"^\d{4}-\d\d-\d\d$",
        r"[a-z]+(-[a-z]+)*",
        r"(?:[a-z]+,)*[a-z]+",
        r"[\w.+-]+@[\w.-]+\.\w+",
        r"^(\d{3}-)?\d+$",
        r"(a|b)*c",
        r"(?:foo|bar)?\s*\d+",
        r"^(?!x)[^,;]+$",
        r"(?i)\S+\s\S+",
        r"(a+){2}",
    ],
)
def test_what_people_write_is_safe(pattern: str) -> None:
    assert is_safe(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"(aa*)*",
        r"(.*)*",
        r"(\w+\s?)*$",
        r"(a|ab|b)*c",
        r"(x?)*y",
        r"((a)*)*",
        r"(a{1,30}){1,30}",
        r"([a-z]+)*@",
        r"(?:\d+-?)+x",
        r"(?=(a+)+b)c",
        r"x|(a+)+b",
        r"(a)(\1+)+b",
        r".*.*.*x",
        r".*a.*a.*a",
        r"\w*\d*\w*!",
        "a" * (LONGEST + 1),
        "(" * 200 + ")" * 200 + "*" * 0 + "(a*)*",
    ],
)
def test_what_can_run_for_ever_is_not(pattern: str) -> None:
    assert not is_safe(pattern)
