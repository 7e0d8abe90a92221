"""Checks settings and options, with errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentgym.errors import ConfigError, did_you_mean
from agentgym.utils.strict_yaml import load_yaml

_PLAIN = {
    "missing": "is required",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "string_type": "should be text",
    "list_type": "should be a list",
    "too_short": "should not be empty",
    "string_too_short": "should not be empty",
    "string_pattern_mismatch": "should be letters, digits, '.', '_' and '-', "
    "beginning with a letter or digit",
}
"""Pydantic's kinds of error in plain words; others keep pydantic's text."""


class PolicyOptions(BaseModel):
    """The settings that only one policy reads: subclass it, and describe each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def checked_options(
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    known: Iterable[str] = (),
    where: str = "option",
) -> dict[str, Any]:
    """A scenario's options: the given ones, checked, and defaults for the others.

    Args:
        defaults: The options that the scenario reads.
        given: What the user set.
        known: More names to suggest for a misspelled one.
        where: What messages call the names.

    Raises:
        ConfigError: An option is unknown, or its value has the wrong type.
    """
    check_names(given, {*known, *defaults}, where, unread=set(given) - set(defaults))
    result = dict(defaults)
    for name, value in given.items():
        default = defaults[name]
        if default is None:
            result[name] = value
            continue
        if isinstance(value, bool) is not isinstance(default, bool):
            raise ConfigError(
                f"{name}: should be {_type_name(default)}, got {_shown(value)}."
            )
        try:
            result[name] = TypeAdapter(type(default)).validate_python(value)
        except ValidationError:
            raise ConfigError(
                f"{name}: should be {_type_name(default)}, got {_shown(value)}."
            ) from None
    return result


def config_error(error: ValidationError, where: str = "") -> ConfigError:
    """Says in one line which settings are wrong and what they should be.

    Args:
        error: What pydantic found.
        where: The file or other place that the settings come from.
    """
    problems = []
    for detail in error.errors(include_url=False):
        field = ".".join(str(part) for part in detail["loc"]) or "settings"
        kind = detail["type"]
        text = re.sub(r"^(Input|Value error,|List|String) ", "", detail["msg"])
        text = _PLAIN.get(kind, text).rstrip(".")
        if kind not in ("missing", "value_error"):
            text += f", got {_shown(detail['input'])}"
        problems.append(f"{field}: {text}")
    prefix = f"{where}: " if where else ""
    return ConfigError(" ".join(f"{prefix}{'; '.join(problems)}.".split()))


def read_settings(path: Path) -> dict[Any, Any]:
    """Reads a YAML file with one `name: value` per line.

    Raises:
        ConfigError: It can't be read, or contains something else.
    """
    try:
        values = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} isn't UTF-8 text.") from None
    except ValueError as error:
        raise ConfigError(f"{path} isn't valid YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path} should contain settings, one 'name: value' per line, not "
            f"{_kind(values)}."
        )
    return values


def check_names(
    given: Iterable[str],
    known: Iterable[str],
    where: str,
    unread: set[str] | None = None,
) -> None:
    """Rejects names that are unknown, or `unread`, and suggests known ones."""
    known = list(known)
    unknown = set(given) - set(known) if unread is None else unread
    if unknown:
        raise ConfigError(
            " ".join(
                f"Unknown {where} '{name}'.{did_you_mean(name, known)}"
                for name in sorted(unknown)
            )
        )


def _type_name(default: Any) -> str:
    names: dict[type, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
    }
    return names.get(type(default), _kind(default))


def _kind(value: Any) -> str:
    names: dict[type, str] = {str: "text", dict: "mapping"}
    return names.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
