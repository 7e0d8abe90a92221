"""What has happened in a conversation, as names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentgym.policies.calls.conversation import Called, Field
from agentgym.policies.planner.fit import KIND_OF_TOOLS, kind_of_schema

if TYPE_CHECKING:
    from agentgym.policies.planner.features import State


def happened(state: State) -> list[str]:
    """Names of what was called, of what came back, and of what is known."""
    names: list[str] = []
    shared_rows = state.toolset.shared_rows
    if state.last is None:
        names.append("start")
    else:
        last = KIND_OF_TOOLS if shared_rows else state.last.tool
        names.append(f"last:{last}")
        names.append(f"last:{'ok' if state.last.ok else 'failed'}")
        if state.last.result.error:
            names.append(f"error:{state.last.result.error}")
        names += (f"last:{last}.{fact}" for fact in _facts_of(state.last))
    for call in state.calls:
        tool = KIND_OF_TOOLS if shared_rows else call.tool
        names.append(f"called:{tool}:{'ok' if call.ok else 'failed'}")
        if call is not state.last:
            names += (f"ever:{tool}.{fact}" for fact in _facts_of(call))
    names.append(f"turns:{min(len(state.said), 3)}")
    names.append(f"calls:{min(len(state.calls), 4)}")
    known = set()
    for t, parameters in enumerate(state.toolset.parameters):
        for p in parameters:
            if p.required and p.values is None:
                name = kind_of_schema(p.schema) if shared_rows else p.name
                found = state.candidates(t, p)
                kinds = {c.kind for c in found} & {"named", "quoted", "field"}
                known.add(f"known:{name}:{min(2, len(found))}")
                known.update(f"known:{name}:{kind}" for kind in kinds)
    names += sorted(known)
    return names


def _facts_of(call: Called) -> Iterable[str]:
    """Fields of a result that take few values."""
    for fld in call.result.fields:
        if category := _category(fld):
            yield f"{fld.key}={category}"


def _category(fld: Field) -> str:
    value = fld.value
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str) and len(value) <= 24 and not re.search(r"[\d@ ]", value):
        return value.lower()
    return ""
