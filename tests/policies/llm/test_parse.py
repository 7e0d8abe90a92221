from __future__ import annotations

from typing import Any

import pytest

from agentgym.policies.llm.parse import parse_call

CALL = ("look", {"order": "1", "deep": True})


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "look", "arguments": {"order": "1", "deep": true}}',
        '{"name": "look", "parameters": {"order": "1", "deep": true}}',
        '[{"name": "look", "arguments": {"order": "1", "deep": true}}]',
        '{"function": {"name": "look", "arguments": {"order": "1", "deep": true}}}',
        '{"name": "look", "arguments": "{\\"order\\": \\"1\\", \\"deep\\": true}"}',
        '<tool_call>\n{"name": "look", "arguments": {"order": "1", "deep": true}}\n'
        "</tool_call>",
        '<tool_call>{"name": "look", "arguments": {"order": "1", "deep": true}}',
        '```json\n{"name": "look", "arguments": {"order": "1", "deep": true}}\n```',
        'Sure: {"name": "look", "arguments": {"order": "1", "deep": true}} Done.',
        '[look(order="1", deep=True)]',
        "look(order='1', deep=True)",
    ],
)
def test_ways_to_write_a_call(text: str) -> None:
    assert parse_call(text) == CALL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is done.",
        "Could you please tell me the order?",
        '{"name": "look"',
        '{"name": 3, "arguments": {}}',
        '{"name": "look", "arguments": [1]}',
        '{"name": "look", "arguments": "{"}',
        "[look(1)]",
        "[look(order=open('/etc/passwd'))]",
        "[look(**x)]",
        "[" * 5000,
        "{" * 5000,
        "(" * 500 + ")" * 500,
    ],
)
def test_anything_else_is_a_message(text: str) -> None:
    found: Any = parse_call(text)
    assert found is None or found == ("look", {})


def test_nothing_is_run() -> None:
    assert parse_call("[look(order=__import__('os').getcwd())]") is None
