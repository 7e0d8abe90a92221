"""JSON schemas of tools: validated, matched in linear time, and never fetched.

Schemas and the texts they match may be untrusted. Python's `re` can run for hours on
some patterns, and jsonschema fetches what `$ref` and `$id` name. Here patterns run on
RE2, references stay inside their schema, and the size of a schema with all its
references expanded is limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

MAX_DEPTH = 24
"""Maximum nesting depth of a schema."""
MAX_PATTERN = 512
"""Maximum characters of a pattern."""
MAX_EXPANSION = 4_000
"""Maximum number of schemas after expanding references."""

_FOLLOWED = 8
"""Maximum length of a chain of references when counting them."""
_WORD = r"[\pL\pN_@]"
_NOT_WORD = r"[^\pL\pN_@]"


class SchemaProblem(Exception):
    """A schema can't be used; the text says why."""


class Pattern:
    """A regular expression in RE2's syntax: no lookaround, no back-references."""

    def __init__(self, source: str) -> None:
        # An anchored pattern describes a whole value: find it as a word in a text.
        body = source.removeprefix("^").removesuffix("$")
        self._plain = _compile(source)
        self._whole = _compile(f"^(?:{body})$")
        self._word = _compile(f"(?:^|{_NOT_WORD})({body})(?:$|{_NOT_WORD})")

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in a text."""
        return self._plain.search(text) is not None

    def fullmatch(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self._whole.search(text) is not None

    def words(self, text: str) -> Iterator[tuple[int, int]]:
        """Positions of whole words that the pattern matches: (start, end)."""
        at = 0
        while (match := self._word.search(text, at)) is not None:
            start, end = match.span(1)
            if end > start:
                yield start, end
            # The separator after one word may also precede the next.
            at = end if end > start else match.end() + (match.end() == match.start())
            if at > len(text):
                return


@lru_cache(maxsize=1024)
def compile_pattern(source: str) -> Pattern:
    """Compiles a pattern.

    Raises:
        SchemaProblem: It is invalid, too long, or can't be matched in linear time.
    """
    if len(source) > MAX_PATTERN:
        raise SchemaProblem(f"a pattern has more than {MAX_PATTERN} characters")
    return Pattern(source)


def check_schema(schema: Mapping[str, Any]) -> None:
    """Checks that a schema can be used.

    Raises:
        SchemaProblem: It is invalid, refers to something outside itself, has a pattern
            that can't be matched in linear time, or expands to too many schemas.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    for key, value, depth in _entries(schema):
        if key in ("$ref", "$dynamicRef", "$id") and isinstance(value, str):
            if not value.startswith("#"):
                raise SchemaProblem(f"'{key}' points outside of it, to {_short(value)}")
        elif key == "$schema" and depth > 1 and isinstance(value, str):
            raise SchemaProblem("'$schema' is only allowed at the top")
        elif key == "pattern" and isinstance(value, str):
            compile_pattern(value)
        elif key == "patternProperties" and isinstance(value, dict):
            for pattern in value:
                compile_pattern(pattern)
    _check_expansion(schema)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        at = ".".join(str(part) for part in error.absolute_path)
        reason = f"{at}: {error.message}" if at else error.message
        raise SchemaProblem(reason if len(reason) <= 200 else reason[:200]) from None
    except Exception as error:
        # Some invalid values make the checker itself fail.
        raise SchemaProblem(type(error).__name__) from None


def validator(schema: Mapping[str, Any]) -> Any:
    """Returns a validator for a checked schema; it never leaves the schema."""
    from referencing import Registry

    made = _validator_class()
    registry: Any = Registry()
    return made(schema, format_checker=made.FORMAT_CHECKER, registry=registry)


def is_valid(validator: Any, value: Any) -> bool:
    """Whether a value is valid; False if it can't be checked."""
    from referencing.exceptions import Unresolvable

    try:
        return bool(validator.is_valid(value))
    except (Unresolvable, SchemaProblem, re.error, RecursionError, OverflowError):
        return False


def _compile(source: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except (re2.error, RecursionError, OverflowError, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise SchemaProblem(
            f"the pattern {_short(source)} can't be used ({_short(str(reason))}); "
            "patterns may not use lookaround or back-references"
        ) from None


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def pattern(checker: Any, source: Any, value: Any, schema: Any) -> Iterator[Any]:
        if checker.is_type(value, "string") and not compile_pattern(source).search(
            value
        ):
            yield ValidationError(f"{value!r} does not match {source!r}")

    def by_pattern(checker: Any, by: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not checker.is_type(value, "object"):
            return
        for source, inner in by.items():
            for name, item in value.items():
                if compile_pattern(source).search(name):
                    yield from checker.descend(
                        item, inner, path=name, schema_path=source
                    )

    def further(checker: Any, inner: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not checker.is_type(value, "object"):
            return
        known = schema.get("properties", {})
        sources = [compile_pattern(p) for p in schema.get("patternProperties", {})]
        for name, item in value.items():
            if name in known or any(source.search(name) for source in sources):
                continue
            if inner is False:
                yield ValidationError(f"{name!r} is not an allowed property")
            elif inner is not True:
                yield from checker.descend(item, inner, path=name)

    make: Any = extend
    return make(
        Draft202012Validator,
        {
            "pattern": pattern,
            "patternProperties": by_pattern,
            "additionalProperties": further,
        },
    )


def _entries(schema: Any) -> Iterator[tuple[str, Any, int]]:
    """All entries of all objects in a schema, with their depth."""
    waiting = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise SchemaProblem(f"it is nested deeper than {MAX_DEPTH}")
        if isinstance(value, Mapping):
            yield from ((key, below, depth) for key, below in value.items())
            if "unevaluatedProperties" in value and "patternProperties" in value:
                raise SchemaProblem(
                    "'unevaluatedProperties' can't be used with 'patternProperties'"
                )
            waiting += [(below, depth + 1) for below in value.values()]
        elif isinstance(value, list):
            waiting += [(below, depth + 1) for below in value]


def _check_expansion(root: Mapping[str, Any]) -> None:
    known: dict[tuple[int, int], int] = {}

    def count(node: Any, followed: int) -> int:
        if not isinstance(node, Mapping | list):
            return 0
        key = (id(node), followed)
        if key not in known:
            inner = node.values() if isinstance(node, Mapping) else node
            total = 1 + sum(count(item, followed) for item in inner)
            reference = node.get("$ref") if isinstance(node, Mapping) else None
            if isinstance(reference, str) and followed < _FOLLOWED:
                total += count(_target(root, reference), followed + 1)
            known[key] = total
        return known[key]

    references = sum(key == "$ref" for key, _, _ in _entries(root))
    if references and count(root, 0) > MAX_EXPANSION:
        raise SchemaProblem("its references expand to too many schemas")


def _target(root: Mapping[str, Any], reference: str) -> Any:
    found: Any = root
    for name in filter(None, reference.removeprefix("#").split("/")):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _short(value: str, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}..."
