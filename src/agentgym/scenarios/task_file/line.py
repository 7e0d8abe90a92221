"""Reads one line of a task file and reports all its problems."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.task import DIFFICULTIES, SPLITS, Difficulty, Message, Split
from agentgym.core.tools import Tool, ToolCall
from agentgym.errors import AgentGymError, did_you_mean
from agentgym.scenarios.task_file.expected import (
    Course,
    ExpectedCall,
    read_expected,
    rule_problems,
)

FIELDS = (
    "id",
    "messages",
    "tools",
    "expected",
    "check",
    "responses",
    "live",
    "answers",
    "difficulty",
    "split",
)
MAX_LINE = 4 << 20
"""Maximum size of a line in bytes."""
MAX_TOOLS = 256
"""Maximum number of tools in a task."""

_ROLES = ("system", "user", "assistant", "tool")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_KNOWN_TOOLS = 2048
_ANSWER = {"status": "ok"}
"""The default answer of a tool that the task has no response for."""


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """A tool's answer to a call."""

    to: ExpectedCall | None
    """The arguments of the calls it answers; None for all calls of the tool."""
    answer: Any


@dataclass(frozen=True, slots=True, eq=False)
class TaskLine:
    """A task as written in the file.

    Attributes:
        courses: Alternative courses of right calls. None if a function checks the
            outcome instead.
        check: That function, as `module:function`.
        responses: Answers by tool.
        live: `module:function` of tools that really run, by tool.
        answers: The user's replies by words of the question; each is given once.
        split: "" if the line doesn't name one.
        size: Size of the line in bytes.
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    courses: Sequence[Course] | None = None
    check: str = ""
    responses: Mapping[str, Sequence[Response]] = field(default_factory=dict)
    live: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    difficulty: Difficulty = "easy"
    split: Split | str = ""
    size: int = 0

    @property
    def code(self) -> list[str]:
        """The Python functions that the line names."""
        return [*([self.check] if self.check else ()), *self.live.values()]

    @property
    def best_steps(self) -> int:
        """Number of decisions in the shortest right course, one call at a time."""
        asked = 1 + len(self.answers)
        if self.courses is None:
            return asked + 1
        return asked + min(sum(len(step) for step in course) for course in self.courses)

    def answer(self, call: ToolCall) -> Any:
        """The answer to a call."""
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        for response in self.responses.get(call.name, ()):
            if response.to is None or response.to.accepts(call, tool):
                return response.answer
        return _ANSWER


@dataclass(frozen=True, slots=True)
class Given:
    """Defaults for all tasks of a file.

    Attributes:
        tools: The tools of the agent in training.
        judged: Whether a function judges tasks without `expected` and `check`.
    """

    tools: tuple[Tool, ...] = ()
    judged: bool = False


NOTHING_GIVEN = Given()


def read_line(
    raw: bytes, given: Given = NOTHING_GIVEN
) -> tuple[TaskLine | None, list[str]]:
    """Reads one line.

    Args:
        raw: The line.
        given: Defaults for all lines.

    Returns:
        The task, or None if it is invalid; and the problems.
    """
    try:
        value = json.loads(raw.strip(), parse_constant=_no_number)
    except json.JSONDecodeError as error:
        return None, [f"invalid JSON: {error.msg} at column {error.colno}"]
    except UnicodeDecodeError as error:
        return None, [f"invalid UTF-8 at byte {error.start + 1} of the line"]
    except RecursionError:
        return None, ["invalid JSON: nested too deeply"]
    except ValueError as error:
        return None, [f"invalid JSON: {error}"]
    if b"\\u" in raw and _has_half_characters(value):
        return None, ["contains half a character (a lone surrogate such as \\ud800)"]
    if not isinstance(value, dict):
        return None, ['should be an object: {"id": ..., "messages": [...], ...}']
    try:
        line, problems = read_task(value, given)
    except RecursionError:
        return None, ["nested too deeply"]
    return line and dataclasses.replace(line, size=len(raw)), problems


def read_task(
    value: Mapping[str, Any], given: Given = NOTHING_GIVEN
) -> tuple[TaskLine | None, list[str]]:
    """Reads a task from a line's JSON value; see `read_line`."""
    problems = [
        f"unknown field '{name}'.{did_you_mean(name, FIELDS)}".rstrip(".")
        for name in value
        if name not in FIELDS
    ]
    id_ = value.get("id")
    if not isinstance(id_, str) or not id_.strip() or len(id_) > 200:
        problems.append("id should be text, at most 200 characters")
    problems += _message_problems(value.get("messages"))
    tools = (
        _read_tools(value["tools"], problems) if "tools" in value else [*given.tools]
    )
    by_name = {tool.name: tool for tool in tools}
    courses: list[Course] | None = None
    ways = ("expected" in value) + ("check" in value)
    if ways == 2 or (not ways and not given.judged):
        problems.append("should have either expected or check")
    elif "expected" in value:
        courses, wrong = read_expected(value["expected"], by_name)
        problems += wrong
    responses = _read_responses(value.get("responses", {}), by_name, problems)
    live = value.get("live", {})
    problems += _code_problems(value, by_name)
    answers = value.get("answers", {})
    if not isinstance(answers, dict) or not all(
        words.strip() and isinstance(said, str) and said.strip()
        for words, said in answers.items()
    ):
        problems.append("answers should map words of a question to the user's reply")
    for name, allowed in (("difficulty", DIFFICULTIES), ("split", SPLITS)):
        if name in value and value[name] not in allowed:
            near = did_you_mean(str(value[name]), allowed)
            known = ", ".join(allowed)
            problems.append(f"{name} should be one of {known}.{near}".rstrip("."))
    if problems:
        return None, [problem.rstrip(".") for problem in problems]
    line = TaskLine(
        id=str(id_),
        messages=tuple(value["messages"]),
        tools=tuple(tools),
        courses=courses,
        check=value.get("check", ""),
        responses=responses,
        live=live,
        answers=answers,
        split=value.get("split", ""),
    )
    difficulty = value.get("difficulty") or estimate_difficulty(line)
    return dataclasses.replace(line, difficulty=difficulty), []


def estimate_difficulty(line: TaskLine) -> Difficulty:
    """Estimates it from the number of tools, calls, questions and parameters."""
    decisions = line.best_steps - 1
    named = {
        call.name for course in line.courses or () for step in course for call in step
    }
    parameters = max(
        (len(tool.properties) for tool in line.tools if tool.name in named), default=0
    )
    points = (len(line.tools) > 3) + (len(line.tools) > 8)
    points += (decisions > 1) + (decisions > 2) + (parameters > 2) + (parameters > 5)
    if line.check:
        points += 2
    return "easy" if points < 2 else "medium" if points < 4 else "hard"


def _message_problems(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages should be a list of chat messages"
        return
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            yield f"messages[{i}] should have a role: {', '.join(_ROLES)}"
        elif not isinstance(message.get("content"), str | list | None):
            yield f"messages[{i}].content should be text"
    last = messages[-1]
    if isinstance(last, dict) and (
        last.get("role") != "user" or not str(last.get("content") or "").strip()
    ):
        yield "messages should end with a user message"


_tools: OrderedDict[str, Tool | str] = OrderedDict()
"""Recent definitions, or their problems: a cache, because tasks share tools."""


def _read_tools(value: Any, problems: list[str]) -> list[Tool]:
    if not isinstance(value, list):
        problems.append("tools should be a list of tool definitions")
        return []
    if len(value) > MAX_TOOLS:
        problems.append(f"tools has {len(value)} tools, more than {MAX_TOOLS}")
        return []
    tools: dict[str, Tool] = {}
    for i, definition in enumerate(value):
        key = json.dumps(definition)
        known = _tools.pop(key, None) or _read_tool(definition)
        _tools[key] = known
        if len(_tools) > _KNOWN_TOOLS:
            _tools.popitem(last=False)
        if isinstance(known, str):
            problems.append(f"tools[{i}]{known}")
        elif known.name in tools:
            problems.append(f"tools[{i}]: two tools are named '{known.name}'")
        else:
            tools[known.name] = known
    return list(tools.values())


def _read_tool(definition: Any) -> Tool | str:
    """The tool, or its problem."""
    if not isinstance(definition, dict):
        return " should be a tool definition"
    try:
        tool = Tool.from_openai(definition)
        if not _TOOL_NAME.fullmatch(tool.name):
            return (
                f": the name {tool.name!r} should be at most 64 letters, digits, _ "
                "and -"
            )
        # Finds invalid schemas and unresolvable references.
        tool.check_arguments({})
        for name in tool.properties:
            tool.check_argument(name, None)
    except AgentGymError as error:
        return f": {error}"
    except Exception as error:
        name = type(error).__name__
        return f": invalid schema: {name}: {str(error)[:200]}"
    return tool


def _read_responses(
    value: Any, tools: Mapping[str, Tool], problems: list[str]
) -> dict[str, list[Response]]:
    found: dict[str, list[Response]] = {}
    entries: list[tuple[str, str, dict[str, Any] | None, Any]] = []
    if isinstance(value, dict):
        entries = [(f"responses.{name}", name, None, a) for name, a in value.items()]
    elif isinstance(value, list):
        for i, one in enumerate(value):
            where = f"responses[{i}]"
            if (
                not isinstance(one, dict)
                or not isinstance(one.get("name"), str)
                or "answer" not in one
                or not isinstance(one.get("arguments", {}), dict)
                or one.keys() - {"name", "arguments", "answer"}
            ):
                problems.append(
                    f'{where} should be {{"name": ..., "arguments": {{}}, "answer": '
                    "...}"
                )
                continue
            entries.append((where, one["name"], one.get("arguments"), one["answer"]))
    else:
        problems.append("responses should map tools to answers, or be a list")
        return {}
    for where, name, arguments, answer in entries:
        if name not in tools:
            near = did_you_mean(name, tools)
            problems.append(f"{where}: unknown tool '{name}'.{near}")
            continue
        to = None
        if arguments is not None:
            problems += rule_problems(arguments, f"{where}.arguments")
            to = ExpectedCall(name, arguments)
        found.setdefault(name, []).append(Response(to, answer))
    return found


def _code_problems(value: Mapping[str, Any], tools: Mapping[str, Tool]) -> list[str]:
    problems = []
    shape = "should be module:function"
    if "check" in value and not _is_reference(value["check"]):
        problems.append(f"check {shape}")
    live = value.get("live", {})
    if not isinstance(live, dict):
        return [*problems, "live should map tools to module:function"]
    answered = value.get("responses")
    for name, reference in live.items():
        if name not in tools:
            problems.append(f"live: unknown tool '{name}'.{did_you_mean(name, tools)}")
        if not _is_reference(reference):
            problems.append(f"live.{name} {shape}")
        if isinstance(answered, dict) and name in answered:
            problems.append(f"tool '{name}' is in both live and responses; remove one")
    return problems


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} isn't a JSON number")


def _has_half_characters(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def bound_tools(
    line: TaskLine,
    load: Callable[[str], Callable[..., Any]],
    dry: Callable[[str], bool] = lambda name: False,
) -> list[Tool]:
    """Returns the line's tools with functions that run them or return the answers.

    Args:
        line: The task. Its answers win over functions that its tools already have.
        load: Returns the function of a `module:function`.
        dry: Returns whether a tool must not run.
    """
    return [_bound(line, tool, load, dry) for tool in line.tools]


def _bound(
    line: TaskLine,
    tool: Tool,
    load: Callable[[str], Callable[..., Any]],
    dry: Callable[[str], bool],
) -> Tool:
    runs = not dry(tool.name)
    reference = line.live.get(tool.name)
    if runs and tool.function is not None and tool.name not in line.responses:
        return tool
    if runs and reference is not None:
        function = load(reference)
        return dataclasses.replace(
            tool, function=function, takes_world=_wants_world(function)
        )

    def answer(**arguments: Any) -> Any:
        return line.answer(ToolCall(tool.name, arguments))

    return dataclasses.replace(tool, function=answer)


def _wants_world(function: Callable[..., Any]) -> bool:
    import inspect

    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return names[:1] == ["world"]
