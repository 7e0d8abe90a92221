"""Strict YAML for hand-written files, with one-line error messages."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


def load_yaml(text: str) -> Any:
    """Reads plain values; never executes anything in the text.

    Raises:
        ValueError: The text isn't valid YAML or sets a name twice; the message says
            where.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(_problem(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply.") from None


def _problem(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{' '.join(str(error).split())}."
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}."


class _StrictLoader(yaml.SafeLoader):
    """Rejects duplicate keys; YAML would silently drop the first."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' is set twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
