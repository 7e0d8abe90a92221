"""The expected calls of a task, their order and their arguments.

An expected argument is a JSON value, which must be equal, or one of these rules:

    {"one_of": [...]}                any of these values or rules
    {"regex": "[A-Z]{3}"}            a text that matches completely
    {"near": 2.5, "within": 0.1}     a number in this range
    {"any": true}                    any value that the schema allows
    {"exact": {...}}                 exactly this value, if it looks like a rule itself

Each rule may also have `"optional": true` (the argument may be omitted) and `"loose":
true` (texts may differ in case, spaces and punctuation). Rules also work inside objects
and lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.core.schemas import SchemaProblem, compile_pattern
from agentgym.core.tools import Tool, ToolCall
from agentgym.errors import did_you_mean

MAX_CALLS = 64
"""Maximum number of expected calls in a task, over all courses."""
MAX_DEPTH = 16
"""Maximum nesting depth of expected values."""

_KINDS: dict[str, frozenset[str]] = {
    "one_of": frozenset(),
    "regex": frozenset(),
    "near": frozenset({"within"}),
    "any": frozenset(),
    "exact": frozenset(),
}
"""The key that makes an object a rule, and the other keys it needs."""
_FLAGS = frozenset({"optional", "loose"})
_MISSING = object()


def rule_of(wanted: Any) -> str:
    """The kind of rule; "" for a plain value."""
    if not isinstance(wanted, dict):
        return ""
    kinds = [kind for kind in _KINDS if kind in wanted]
    if len(kinds) != 1:
        return ""
    known = {kinds[0], *_KINDS[kinds[0]], *_FLAGS}
    return kinds[0] if known.issuperset(wanted) else ""


def is_optional(wanted: Any) -> bool:
    """Whether an argument may be omitted."""
    return bool(rule_of(wanted)) and wanted.get("optional") is True


def matches(wanted: Any, given: Any, loose: bool = False) -> bool:
    """Whether a value fits a rule or an expected value."""
    kind = rule_of(wanted)
    if kind:
        loose = loose or wanted.get("loose") is True
    if kind == "any":
        return True
    if kind == "exact":
        return same(wanted["exact"], given, loose)
    if kind == "one_of":
        return any(matches(one, given, loose) for one in wanted["one_of"])
    if kind == "regex":
        return isinstance(given, str) and (
            compile_pattern(("(?i)" if loose else "") + wanted["regex"]).fullmatch(
                given
            )
        )
    if kind == "near":
        return _is_number(given) and abs(given - wanted["near"]) <= wanted["within"]
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and wanted.keys() >= given.keys()
            and all(
                matches(one, given[name], loose) if name in given else is_optional(one)
                for name, one in wanted.items()
            )
        )
    if isinstance(wanted, list):
        return (
            isinstance(given, list)
            and len(given) == len(wanted)
            and all(matches(w, g, loose) for w, g in zip(wanted, given, strict=True))
        )
    return same(wanted, given, loose)


def same(one: Any, other: Any, loose: bool = False) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same(one[name], other[name], loose) for name in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            same(a, b, loose) for a, b in zip(one, other, strict=True)
        )
    if loose and isinstance(one, str) and isinstance(other, str):
        return _plain(one) == _plain(other)
    return bool(one == other)


def samples(wanted: Any) -> list[Any]:
    """Values that fit a rule, as far as they can be listed, to check with a schema."""
    kind = rule_of(wanted)
    if kind == "one_of":
        return [value for one in wanted["one_of"] for value in samples(one)]
    if kind in ("exact", "near"):
        return [wanted[kind]]
    if kind:
        return []
    if isinstance(wanted, dict):
        made: dict[str, Any] = {}
        for name, one in wanted.items():
            if values := samples(one):
                made[name] = values[0]
            elif not is_optional(one):
                return []
        return [made]
    if isinstance(wanted, list):
        items = [samples(one) for one in wanted]
        return [[values[0] for values in items]] if all(items) else []
    return [wanted]


def rule_problems(wanted: Any, where: str, depth: int = 0) -> Iterator[str]:
    """The problems of an expected value."""
    if depth > MAX_DEPTH:
        yield f"{where} is nested more than {MAX_DEPTH} levels deep"
        return
    kind = rule_of(wanted)
    if kind:
        for flag in _FLAGS & wanted.keys():
            if not isinstance(wanted[flag], bool):
                yield f"{where}: {flag} should be true or false"
    if kind == "one_of":
        if not isinstance(wanted["one_of"], list) or not wanted["one_of"]:
            yield f"{where}: one_of should be a list with at least one value"
            return
        for one in wanted["one_of"]:
            yield from rule_problems(one, where, depth + 1)
    elif kind == "regex":
        try:
            if not isinstance(wanted["regex"], str):
                raise SchemaProblem("it should be text")
            compile_pattern(wanted["regex"])
        except SchemaProblem as problem:
            yield f"{where}: invalid regex: {problem}"
    elif kind == "near":
        if not _is_number(wanted["near"]) or not _is_number(wanted.get("within")):
            yield f"{where}: near and within should both be numbers"
        elif wanted["within"] < 0:
            yield f"{where}: within should be at least 0"
    elif kind == "any":
        if wanted["any"] is not True:
            yield f"{where}: any should be true"
    elif not kind and isinstance(wanted, dict):
        for name, one in wanted.items():
            yield from rule_problems(one, f"{where}.{name}", depth + 1)
    elif not kind and isinstance(wanted, list):
        for one in wanted:
            yield from rule_problems(one, where, depth + 1)


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedCall:
    """An expected call."""

    name: str
    arguments: Mapping[str, Any]

    def accepts(self, call: ToolCall, tool: Tool | None) -> bool:
        """Whether a call matches. Arguments with a default may be omitted."""
        return call.name == self.name and not self.wrong(call, tool)

    def wrong(self, call: ToolCall, tool: Tool | None) -> frozenset[str]:
        """The parameters with wrong or missing values, in a call of this tool."""
        defaults = {
            name: schema["default"]
            for name, schema in (tool.properties if tool else {}).items()
            if isinstance(schema, Mapping) and "default" in schema
        }
        found = set()
        for name, wanted in self.arguments.items():
            given = call.arguments.get(name, defaults.get(name, _MISSING))
            left_out = name not in call.arguments
            if left_out and is_optional(wanted):
                continue
            if given is _MISSING or not matches(wanted, given):
                found.add(name)
        for name, value in call.arguments.items():
            if name not in self.arguments and not (
                name in defaults and same(defaults[name], value)
            ):
                found.add(name)
        return frozenset(found)


Course = Sequence[Sequence[ExpectedCall]]
"""Steps in order; the calls of one step may come in any order."""


class CallProgress:
    """The progress of an episode through alternative right courses."""

    def __init__(self, courses: Sequence[Course], tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        # For each course that still fits: its current step and the calls made there.
        self._at: list[tuple[Course, int, tuple[ToolCall, ...]]] = [
            (course, 0, ()) for course in courses
        ]

    @property
    def finished(self) -> bool:
        """Whether no more calls are expected."""
        return any(at == len(course) for course, at, _ in self._at)

    @property
    def share(self) -> float:
        """Share of the expected calls that were made, in the most advanced course."""
        return max((_share(*state) for state in self._at), default=0.0)

    def nearly(self, call: ToolCall) -> frozenset[str] | None:
        """The wrong parameters of a call, compared with the closest expected call.

        None if no call of this tool is expected now.
        """
        tool = self._tools.get(call.name)
        wrong = [
            expected.wrong(call, tool)
            for course, at, _ in self._at
            if at < len(course)
            for expected in course[at]
            if expected.name == call.name
        ]
        return min(wrong, key=len, default=None)

    def take(self, call: ToolCall, *, counts: bool = True) -> bool:
        """Returns whether a call is right, and records it.

        Args:
            call: The call.
            counts: Whether to record it; False if a fault kept it from running.
        """
        left = []
        for course, at, made in self._at:
            if at == len(course):
                continue
            now = (*made, call)
            if self._assignable(now, course[at]):
                full = len(now) == len(course[at])
                left.append((course, at + 1, ()) if full else (course, at, now))
        if left and counts:
            self._at = left
        return bool(left)

    def _assignable(
        self, calls: Sequence[ToolCall], due: Sequence[ExpectedCall]
    ) -> bool:
        """Whether each call can be matched with a different expected call."""
        taken: dict[int, int] = {}

        def place(index: int, seen: set[int]) -> bool:
            call = calls[index]
            for slot, expected in enumerate(due):
                if slot in seen or not expected.accepts(
                    call, self._tools.get(call.name)
                ):
                    continue
                seen.add(slot)
                if slot not in taken or place(taken[slot], seen):
                    taken[slot] = index
                    return True
            return False

        return all(place(index, set()) for index in range(len(calls)))


def read_expected(
    value: Any, tools: Mapping[str, Tool]
) -> tuple[list[Course], list[str]]:
    """Reads the field `expected`: one course or several alternatives.

    Returns:
        The courses, and their problems.
    """
    problems: list[str] = []
    if isinstance(value, dict) and value.keys() == {"any_of"}:
        written = value["any_of"]
        if not isinstance(written, list) or not written:
            return [], ["expected.any_of should be a list of courses"]
        places = [f"expected.any_of[{i}]" for i in range(len(written))]
    else:
        written, places = [value], ["expected"]
    courses: list[Course] = []
    count = 0
    for course, place in zip(written, places, strict=True):
        if not isinstance(course, list):
            problems.append(
                f'{place} should be a list of calls, or {{"any_of": [...]}}'
            )
            continue
        steps = []
        for i, step in enumerate(course):
            together = step if isinstance(step, list) else [step]
            if not together:
                problems.append(f"{place}[{i}] should not be empty")
                continue
            count += len(together)
            if count > MAX_CALLS:
                return [], [f"expected has more than {MAX_CALLS} calls"]
            where = f"{place}[{i}]"
            calls = []
            for j, one in enumerate(together):
                at = f"{where}[{j}]" if isinstance(step, list) else where
                calls.append(_read_call(one, tools, at, problems))
            steps.append([call for call in calls if call is not None])
        courses.append(steps)
    return courses, problems


def _read_call(
    value: Any, tools: Mapping[str, Tool], where: str, problems: list[str]
) -> ExpectedCall | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        problems.append(f'{where} should be a call: {{"name": ..., "arguments": {{}}}}')
        return None
    for field in value.keys() - {"name", "arguments"}:
        near = did_you_mean(field, ("name", "arguments"))
        problems.append(f"{where}: unknown field '{field}'.{near}".rstrip("."))
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        problems.append(f"{where}.arguments should be an object")
        return None
    tool = tools.get(value["name"])
    if tool is None:
        near = did_you_mean(value["name"], tools)
        problems.append(f"{where}: unknown tool '{value['name']}'.{near}")
        return None
    problems += _argument_problems(arguments, tool, f"{where}.arguments")
    return ExpectedCall(tool.name, arguments)


def _argument_problems(
    arguments: Mapping[str, Any], tool: Tool, where: str
) -> Iterator[str]:
    for name in sorted(tool.required - arguments.keys()):
        yield f"{where}: '{tool.name}' requires '{name}'"
    for name, wanted in arguments.items():
        if name not in tool.properties and not tool.parameters.get(
            "additionalProperties"
        ):
            near = did_you_mean(name, tool.properties)
            yield f"{where}: '{tool.name}' has no parameter '{name}'.{near}".rstrip(".")
            continue
        wrong = list(rule_problems(wanted, f"{where}.{name}"))
        yield from wrong
        if wrong:
            continue
        for value in samples(wanted):
            problem = tool.check_argument(name, value)
            if problem is not None:
                yield f"{where}.{name} violates the schema: {problem}"
                break


def _share(course: Course, at: int, made: Sequence[ToolCall]) -> float:
    total = sum(len(step) for step in course)
    done = sum(len(step) for step in course[:at]) + len(made)
    return done / total if total else 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()
