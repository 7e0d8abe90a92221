"""Finds candidate values for a parameter, from its JSON schema alone.

A schema (enum, const, boolean, number, string format, pattern, array, nested object)
becomes a list of valid values: those that the schema lists, and those found in the
conversation and the tool results. Every value conforms to the schema.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agentgym.core.schemas import (
    Pattern,
    SchemaProblem,
    compile_pattern,
    is_valid,
    validator,
)
from agentgym.core.tools import Tool
from agentgym.policies.calls.conversation import (
    MAX_SCHEMAS,
    Field,
    Found,
    Part,
    Result,
    Said,
    Span,
)

NOTHING: Mapping[str, Any] = {"not": {}}
"""The schema that no value conforms to."""

MAX_CANDIDATES = 48
"""Maximum number of values for a parameter; the latest parts of the chat win."""

_MAX_DEPTH = 4
_REMEMBERED_VALUES, _REMEMBERED_LENGTH = 1024, 64
"""Maximum number and length of the texts whose validity a schema caches."""

_FORMATS: dict[str, str] = {
    "email": r"[A-Za-z0-9][\w.+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "idn-email": r"[\w][\w.+-]*@[\w-]+(?:\.[\w-]+)+",
    "date": r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])",
    "date-time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)",
    "time": r"\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)",
    "uri": r"[a-z][a-z0-9+.-]*://[^\s<>\"']+[^\s<>\"'.,;:!?)]",
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"(?:\d{1,3}\.){3}\d{1,3}",
    "hostname": r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "phone": r"\+?\d[\d\s()/-]{5,}\d",
}

_EXACT_FORMATS = frozenset({"email", "idn-email", "uuid", "phone"})
"""Formats whose pattern finds valid values only."""

# Keywords that this module checks itself; jsonschema checks schemas with others.
_ANNOTATIONS = frozenset(
    "description title default examples $ref $defs definitions".split()
)
_HANDLED = _ANNOTATIONS.union(
    "type items properties required additionalProperties minItems pattern format "
    "minLength maxLength minimum maximum".split()
)


@dataclass(slots=True)
class Candidate:
    """A valid value and where it was found.

    Attributes:
        value: The value to pass to the tool.
        kind: How it was found ("enum", "pattern", "named", "field", ...).
        spans: (part, span) for each occurrence in the user's messages.
        fields: (part, field) for each occurrence in tool results.
    """

    value: Any
    kind: str
    spans: list[tuple[int, Span]] = field(default_factory=list)
    fields: list[tuple[int, Field]] = field(default_factory=list)


def parameter_schemas(tool: Tool) -> dict[str, Mapping[str, Any]]:
    """Schemas of all parameters, including those that are only listed as required."""
    given: dict[str, Any] = {**tool.properties}
    for name in sorted(tool.required - given.keys()):
        given[name] = True
    return {
        name: ({} if schema else NOTHING) if isinstance(schema, bool) else schema
        for name, schema in given.items()
    }


def is_choice(schema: Mapping[str, Any]) -> bool:
    """Whether the schema lists all values: enum, const, boolean, or described ones."""
    return (
        "enum" in schema
        or "const" in schema
        or _types(schema) == frozenset({"boolean"})
        or bool(described_values(schema))
    )


def described_values(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The values that `oneOf` or `anyOf` lists as `const`, with their descriptions.

    This is how JSON Schema describes the values of an enum. Empty if a branch is
    anything else.
    """
    branches = [*(schema.get("oneOf") or ()), *(schema.get("anyOf") or ())]
    if not all(isinstance(b, Mapping) and "const" in b for b in branches):
        return []
    return [(b["const"], str(b.get("description") or "")) for b in branches]


def choices(
    schema: Mapping[str, Any], root: Mapping[str, Any] | None = None
) -> list[Any]:
    """The values that a choice schema lists and allows.

    Args:
        schema: A schema for which `is_choice` is true.
        root: The schema that `$ref` points into.
    """
    if "const" in schema:
        values = [schema["const"]]
    elif "enum" in schema:
        values = list(schema["enum"])
    elif described := described_values(schema):
        values = [value for value, _ in described]
    else:
        values = [True, False]
    if _ANNOTATIONS.issuperset(schema.keys() - {"const", "enum"}):
        return values
    return [value for value in values if _is_valid(value, schema, root or schema)]


def schema_key(schema: Mapping[str, Any]) -> str:
    """A cache key for the values that a schema finds in a part."""
    return json.dumps(schema, sort_keys=True, default=str)


def find_candidates(
    schema: Mapping[str, Any],
    parts: Sequence[Part],
    root: Mapping[str, Any] | None = None,
    *,
    key: str = "",
    depth: int = 0,
) -> list[Candidate]:
    """Returns all values for a parameter, without duplicates, in a fixed order.

    Args:
        schema: The parameter's schema.
        parts: The conversation.
        root: The schema that `$ref` points into.
        key: `schema_key(schema)`, if already known.
        depth: Nesting depth, which is limited.
    """
    root = schema if root is None else root
    schema = _resolve(schema, root)
    found: dict[Any, Candidate] = {}
    for candidate in _generate(schema, parts, root, key or schema_key(schema), depth):
        value = candidate.value
        simple = isinstance(value, str | int | float | bool)
        # 1, 1.0 and True are equal in Python, but not for a tool.
        same = (type(value), value) if simple else schema_key({"": value})
        known = found.get(same)
        if known is not None:
            known.spans += candidate.spans
            known.fields += candidate.fields
        elif len(found) < MAX_CANDIDATES:
            found[same] = candidate
    result = list(found.values())
    if not is_choice(schema) and not _conforms_by_itself(schema):
        validator = _validator_of(schema, root)
        result = [c for c in result if validator.accepts(c.value)]
    return result


def _generate(
    schema: Mapping[str, Any],
    parts: Sequence[Part],
    root: Mapping[str, Any],
    key: str,
    depth: int,
) -> Iterator[Candidate]:
    if is_choice(schema):
        yield from (Candidate(value, "enum") for value in choices(schema, root))
        return
    for branch in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        if depth < _MAX_DEPTH:
            merged = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            inner = {**merged, **_resolve(branch, root)}
            yield from find_candidates(inner, parts, root, depth=depth + 1)
    if schema.get("anyOf") or schema.get("oneOf"):
        return
    types = _types(schema)
    if types & {"string", "integer", "number"}:
        for index in reversed(range(len(parts))):
            part = parts[index]
            place = part if isinstance(part, Said) else part.result
            if (found := place.found.get(key)) is None:
                if isinstance(place, Said):
                    found = list(_found_in_text(schema, place))
                else:
                    found = list(_found_in_fields(schema, place))
                if len(place.found) >= MAX_SCHEMAS:
                    place.found.clear()
                place.found[key] = found
            for value, kind, at in found:
                if isinstance(at, Span):
                    yield Candidate(value, kind, spans=[(index, at)])
                else:
                    yield Candidate(value, kind, fields=[(index, at)])
    if "boolean" in types:
        yield from (Candidate(value, "enum") for value in (True, False))
    if "array" in types:
        yield from _arrays(schema, parts, root, depth)
    if "object" in types:
        yield from _objects(schema, parts, root, depth)
    if "default" in schema and _is_valid(schema["default"], schema, root):
        yield Candidate(schema["default"], "default")
    for bound in ("minimum", "maximum") if types & {"integer", "number"} else ():
        value = schema.get(bound)
        if _fits_number(schema, types, value):
            yield Candidate(value, "default")
    if "null" in types:
        yield Candidate(None, "default")


def _found_in_text(schema: Mapping[str, Any], said: Said) -> Iterator[Found]:
    types = _types(schema)
    if "string" in types:
        pattern, kind = _string_pattern(schema)
        spans = said.phrases
        if pattern is not None:
            spans = [Span(*at, kind) for at in pattern.words(said.text)]
        for span in spans:
            value = said.text[span.start : span.end]
            if value and _fits_string(schema, value):
                yield value, span.kind, span
    if types & {"integer", "number"}:
        for span in said.numbers:
            text = said.text[span.start : span.end].replace(",", "")
            number = _number(text, whole="number" not in types)
            if _fits_number(schema, types, number):
                yield number, "number", span


def _found_in_fields(schema: Mapping[str, Any], result: Result) -> Iterator[Found]:
    types = _types(schema)
    pattern, _ = _string_pattern(schema)
    for fld in result.fields:
        value = fld.value
        if isinstance(value, str):
            fits = pattern is None or pattern.fullmatch(value)
            if "string" in types and value and fits and _fits_string(schema, value):
                yield value, "field", fld
        elif not isinstance(value, bool) and _fits_number(schema, types, value):
            yield value if "number" in types else int(value), "field", fld


def _fits_string(schema: Mapping[str, Any], value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
        return False
    pattern, kind = _string_pattern(schema)
    return kind != "pattern" or (pattern is not None and pattern.search(value))


def _fits_number(schema: Mapping[str, Any], types: frozenset[str], value: Any) -> bool:
    if not isinstance(value, int | float) or not types & {"integer", "number"}:
        return False
    low, high = schema.get("minimum", -1e308), schema.get("maximum", 1e308)
    return bool(low <= value <= high) and ("number" in types or _is_whole(value))


def _is_whole(value: float) -> bool:
    # An integer may be too long for a float.
    return isinstance(value, int) or value.is_integer()


def _arrays(
    schema: Mapping[str, Any],
    parts: Sequence[Part],
    root: Mapping[str, Any],
    depth: int,
) -> Iterator[Candidate]:
    least = int(schema.get("minItems", 0))
    items: list[Candidate] = []
    if depth < _MAX_DEPTH:
        inner = _resolve(schema.get("items", True), root)
        items = find_candidates(inner, parts, root, depth=depth + 1)
    if least <= 1:
        for item in items:
            yield Candidate([item.value], item.kind, item.spans, item.fields)
    if len(items) > 1 and len(items) >= least:
        for size in range(max(2, least), min(len(items), max(4, least)) + 1):
            values = [item.value for item in items[:size]]
            yield Candidate(values, "list")
        yield Candidate([item.value for item in items], "list")
    if least == 0:
        yield Candidate([], "default")


def _objects(
    schema: Mapping[str, Any],
    parts: Sequence[Part],
    root: Mapping[str, Any],
    depth: int,
) -> Iterator[Candidate]:
    if depth >= _MAX_DEPTH:
        return
    required = set(schema.get("required") or ())
    names = [n for n in schema.get("properties") or {} if n in required]
    inner = [
        find_candidates(
            _resolve(schema["properties"][n], root), parts, root, depth=depth + 1
        )[:4]
        for n in names
    ]
    if len(names) < len(required):
        return
    for combination in itertools.islice(itertools.product(*inner), 24):
        value = {n: c.value for n, c in zip(names, combination, strict=True)}
        yield Candidate(
            value,
            "object",
            [span for c in combination for span in c.spans],
            [fld for c in combination for fld in c.fields],
        )


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(declared)
    if "properties" in schema:
        return frozenset({"object"})
    if "items" in schema:
        return frozenset({"array"})
    if "minimum" in schema or "maximum" in schema:
        return frozenset({"number"})
    return frozenset({"string"})


def _string_pattern(schema: Mapping[str, Any]) -> tuple[Pattern | None, str]:
    """The pattern of a schema's strings, and where it comes from."""
    source = schema.get("pattern")
    if not isinstance(source, str):
        source = _FORMATS.get(str(schema.get("format")))
        return (compile_pattern(source), "format") if source else (None, "free")
    try:
        return compile_pattern(source), "pattern"
    except SchemaProblem:
        return None, "pattern"


def _number(text: str, whole: bool) -> int | float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if value.is_integer() and "." not in text:
        # Not via float, which can't represent long integers exactly.
        return int(text)
    return None if whole else value


def _resolve(
    schema: Mapping[str, Any] | bool, root: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Follows local references; an unresolvable one allows any value."""
    if isinstance(schema, bool):
        return {} if schema else NOTHING
    for _ in range(8):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target: Any = root
        for name in reference.removeprefix("#/").split("/"):
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
            if not isinstance(target, Mapping | bool):
                target = {}
        if isinstance(target, bool):
            target = {} if target else NOTHING
        schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
    return {}


def _conforms_by_itself(schema: Mapping[str, Any]) -> bool:
    """Whether the values found for a schema need no check by jsonschema."""
    form = schema.get("format")
    exact = form is None or (form in _EXACT_FORMATS and "pattern" not in schema)
    return exact and _HANDLED.issuperset(schema)


def _is_valid(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    return _validator_of(schema, root).accepts(value)


def _validator_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> _Validator:
    definitions = {k: root[k] for k in ("$defs", "definitions") if k in root}
    return _validator(json.dumps([schema, definitions], default=str))


class _Validator:
    """Validates with jsonschema, and caches results because jsonschema is slow."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = validator(schema)
        self._known: dict[str, bool] = {}

    def accepts(self, value: Any) -> bool:
        """Returns whether a value is valid."""
        if not isinstance(value, str) or len(value) > _REMEMBERED_LENGTH:
            return is_valid(self._validator, value)
        known = self._known.get(value)
        if known is None:
            if len(self._known) >= _REMEMBERED_VALUES:
                self._known.clear()
            known = self._known[value] = is_valid(self._validator, value)
        return known


@lru_cache(maxsize=512)
def _validator(source: str) -> _Validator:
    schema, definitions = json.loads(source)
    return _Validator({**schema, **definitions})
