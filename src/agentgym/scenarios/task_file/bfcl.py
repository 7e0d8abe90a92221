"""Imports tasks in the format of the Berkeley Function Calling Leaderboard (BFCL).

A question has `id`, `question` (turns of messages) and `function` (definitions with
Python's types: "dict", "float", "tuple"). An answer has the `id` and `ground_truth`: a
list of calls, each `{name: {parameter: [accepted values]}}`, where "" means that the
parameter is optional. Without a file of answers, no call is right. Both files may be a
JSON array or JSON Lines.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.errors import FormatError
from agentgym.scenarios.task_file.line import MAX_LINE, read_task
from agentgym.utils.files import atomic_path

_TYPES = {
    name: ours
    for ours, names in {
        "object": "dict hashmap",
        "number": "float double",
        "integer": "long short byte int bigint",
        "array": "tuple list arraylist queue stack set",
        "boolean": "bool",
        "string": "char str",
    }.items()
    for name in names.split()
}
"""Types of other languages, in lower case. Unknown types allow anything."""
_JSON_TYPES = frozenset("object number integer array boolean string null".split())


def import_bfcl(
    questions: Path | str, answers: Path | str | None, output: Path | str
) -> tuple[int, list[str]]:
    """Converts questions to a task file, which is written completely or not at all.

    Returns:
        The number of tasks written, and the reasons why others were skipped.

    Raises:
        FormatError: A file can't be read or written, or contains no valid question.
    """
    count, left_out = 0, []
    try:
        with atomic_path(output) as temporary:
            with temporary.open("w", encoding="utf-8") as file:
                for line, reason in read_bfcl(questions, answers):
                    if line is None:
                        left_out.append(reason)
                        continue
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    count += 1
            if not count:
                first = f" First problem: {left_out[0]}." if left_out else ""
                raise FormatError(f"{questions} contains no valid question.{first}")
    except OSError as error:
        raise FormatError(f"Can't write {output}: {error.strerror or error}.") from None
    return count, left_out


def read_bfcl(
    questions: Path | str, answers: Path | str | None = None
) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Converts questions to lines of a task file.

    Args:
        questions: The file of questions.
        answers: The file of possible answers; without it, no call is ever right.

    Yields:
        A line and "", or None and the reason why a question was skipped.

    Raises:
        FormatError: A file can't be read or has another format.
    """
    known = {} if answers is None else _answers(Path(answers))
    for number, entry in enumerate(_entries(Path(questions)), start=1):
        where = f"question {number}"
        if not isinstance(entry, dict):
            yield None, f"{where}: should be an object"
            continue
        where = f"question {number} ({entry.get('id')})"
        if answers is not None and str(entry.get("id")) not in known:
            yield None, f"{where}: has no answer"
            continue
        try:
            line = _convert(entry, known.get(str(entry.get("id"))))
        except KeyError as error:
            yield None, f"{where}: missing field {error}"
            continue
        except (TypeError, ValueError, AttributeError) as error:
            yield None, f"{where}: {error}"
            continue
        problems = read_task(line)[1]
        if problems:
            yield None, f"{where}: {problems[0]}"
        else:
            yield line, ""


def _convert(entry: Mapping[str, Any], truth: Any) -> dict[str, Any]:
    functions = entry.get("function")
    if isinstance(functions, dict):
        functions = [functions]
    if not isinstance(functions, list):
        raise ValueError("has no list of functions")
    names: dict[str, str] = {}
    tools = []
    schemas: dict[str | None, dict[str, Any]] = {}
    for function in functions:
        name = str(function["name"])
        names[name] = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
        schema = _schema(function.get("parameters") or {}, "object")
        schemas[names[name]] = schema
        about = str(function.get("description") or "")
        definition = {"name": names[name], "description": about, "parameters": schema}
        tools.append({"type": "function", "function": definition})
    calls = []
    for call in truth or ():
        if not isinstance(call, dict) or len(call) != 1:
            raise ValueError("its answer isn't a list of {name: {parameter: [values]}}")
        ((name, arguments),) = call.items()
        tool = names.get(name, name)
        properties = schemas.get(tool, {}).get("properties", {})
        calls.append(
            {
                "name": tool,
                "arguments": {
                    parameter: _accepted(values, properties.get(parameter, {}))
                    for parameter, values in arguments.items()
                },
            }
        )
    return {
        "id": str(entry["id"]),
        "messages": _messages(entry.get("question")),
        "tools": tools,
        # The calls of one answer are parallel calls, in any order.
        "expected": [calls] if len(calls) > 1 else calls,
    }


def _messages(question: Any) -> list[Any]:
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    if not isinstance(question, list) or not question:
        raise ValueError("has no question")
    if isinstance(question[0], list):
        if len(question) > 1:
            raise ValueError("has several turns, which aren't supported")
        question = question[0]
    return list(question)


def _schema(schema: Any, default: str = "") -> dict[str, Any]:
    """A schema with JSON's types."""
    if not isinstance(schema, dict):
        return {}
    made = dict(schema)
    declared = str(schema.get("type") or default)
    known = _TYPES.get(declared.lower(), declared.lower())
    made.pop("type", None)
    if known in _JSON_TYPES:
        made["type"] = known
    # On a parameter, JSON Schema has no such keyword; only lists of names are valid.
    if not isinstance(made.get("required", []), list):
        del made["required"]
    if isinstance(made.get("properties"), dict):
        made["properties"] = {n: _schema(s) for n, s in made["properties"].items()}
    if "items" in made:
        made["items"] = _schema(made["items"])
    return made


def _accepted(values: Any, schema: Any) -> dict[str, Any]:
    """The rule for a list of accepted values."""
    if not isinstance(values, list):
        values = [values]
    rule: dict[str, Any] = {
        "one_of": [_nested(v, schema) for v in values if v != ""] or [""],
        "loose": True,
    }
    if "" in values:
        rule["optional"] = True
    return rule


def _nested(value: Any, schema: Any) -> Any:
    """In objects, each field also has a list of accepted values."""
    if isinstance(value, dict):
        properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
        return {
            name: _accepted(inner, properties.get(name, {}))
            for name, inner in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        return [_nested(inner, items) for inner in value]
    return value


def _answers(path: Path) -> dict[str, Any]:
    found = {}
    for entry in _entries(path):
        if not isinstance(entry, dict) or "ground_truth" not in entry:
            raise FormatError(
                f"{path} isn't a file of answers: an entry has no ground_truth."
            )
        found[str(entry.get("id"))] = entry["ground_truth"]
    return found


def _entries(path: Path) -> Iterator[Any]:
    """The entries of a JSON array or of JSON Lines."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            start = file.read(1)
            while start.isspace():
                start = file.read(1)
            if start == "[":
                yield from json.loads(start + file.read())
                return
            rest = file.readline(MAX_LINE)
            numbered = enumerate(itertools.chain([start + rest], file), start=1)
            for number, line in numbered:
                if line.strip():
                    yield _entry(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FormatError(f"Can't read {path}: {reason}.") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{path} isn't valid JSON: {error}.") from None


def _entry(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise FormatError(f"{path}, line {number}: invalid JSON: {error}.") from None
