"""What the heads see of a state: clauses, history, facts and places of values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym.policies.calls.candidates import Candidate, find_candidates
from agentgym.policies.calls.conversation import (
    Called,
    Field,
    Part,
    Said,
    spaced,
    text_words,
)
from agentgym.policies.planner.encoder import WIDTH, EncodedText
from agentgym.policies.planner.facts import (
    KIND_OF_TOOLS,
    PlaceFact,
    ToolFact,
    ValueFact,
    is_free,
    kind_of_schema,
    left_over,
    loose,
    named,
    spoken,
    unused,
)
from agentgym.policies.planner.heads import FLAGS, HISTORY, Array, Block, Clauses
from agentgym.policies.planner.toolset import ABSENT, ASK, FINISH, Parameter, ToolSet
from agentgym.policies.planner.vectors import (
    EMBEDDING_SCALE,
    hashed,
    message_block,
    neighbours,
    span_vector,
    weakest_match,
)

_KINDS = {
    kind: i
    for i, kind in enumerate(
        "pattern format named quoted id clause sentence message number field default "
        "list object absent".split()
    )
}
_NEIGHBOURS = 128
"""Buckets into which the words around a value are hashed."""
BLOCKS = 3
"""Encoded parts of a value's features: its span, its clause, its field's name."""
POINTER_FEATURES = BLOCKS * WIDTH + _NEIGHBOURS + len(_KINDS) + len(PlaceFact)


_NOTHING = Block(
    "",
    np.zeros((1, WIDTH), np.float32),
    np.zeros((1, WIDTH), np.float32),
    np.zeros(1, np.int64),
)


class State:
    """One conversation as the heads see it."""

    def __init__(
        self,
        toolset: ToolSet,
        parts: Sequence[Part],
        encoded: Mapping[str, EncodedText],
    ) -> None:
        self.toolset = toolset
        self.parts = parts
        self._encoded = encoded
        self._found: dict[str, list[Candidate]] = {}
        self.calls = [p for p in parts if isinstance(p, Called)]
        self.said = [p for p in parts if isinstance(p, Said)]
        self.last = self.calls[-1] if self.calls else None
        self._typed = self._typed_values()
        self.clauses = self._read_clauses()
        self.history = hashed(_happened(self), HISTORY)
        self.facts, self.open = self._tool_facts()
        self.distributions: dict[Any, Any] = {}
        """Kept by the policy for as long as its weights stay the same."""
        self.cases: dict[Any, Any] = {}
        """Kept by the policy: what its heads are given for each factor."""

    # What each head is given -----------------------------------------------------

    def candidates(self, tool: int, parameter: Parameter) -> list[Candidate]:
        """Values that were found for a parameter."""
        found = self._found.get(parameter.key)
        if found is None:
            root = self.toolset.tools[tool].parameters
            found = find_candidates(
                parameter.schema, self.parts, root, key=parameter.key
            )
            self._found[parameter.key] = found
        return found if parameter.required else [*found, Candidate(ABSENT, "absent")]

    def parameter_name(self, key: str | tuple[int, int]) -> str:
        """Of the parameter that a factor chooses; "" if it chooses something else."""
        if isinstance(key, str):
            return ""
        tool, parameter = key
        return self.toolset.parameters[tool][parameter].name

    def value_facts(self, parameter: Parameter) -> Array:
        """Facts about listed values: do they stand in what was said or found?"""
        values = parameter.values or []
        facts = np.zeros((len(values), len(ValueFact)), np.float32)
        facts[:, ValueFact.ANY] = 1.0
        said = frozenset().union(*(text_words(s.text) for s in self.said))
        found = {
            str(f.value).lower()
            for f in (self.last.result.fields if self.last else ())
            if isinstance(f.value, str)
        }
        for i, value in enumerate(values):
            words = text_words(spaced(str(value)))
            facts[i, ValueFact.SAID] = bool(words) and words <= said
            facts[i, ValueFact.SAID_PLAINLY] = (
                parameter.plain and facts[i, ValueFact.SAID]
            )
            facts[i, ValueFact.FOUND] = str(value).lower() in found
            facts[i, ValueFact.ABSENT] = value is ABSENT
        return facts

    def ask_facts(self) -> Array:
        """Facts about what could be asked for: is it known already?"""
        facts = np.zeros((len(self.toolset.askable), len(ValueFact)), np.float32)
        facts[:, ValueFact.ANY] = 1.0
        for i, name in enumerate(self.toolset.askable):
            facts[i, ValueFact.SAID] = any(
                bool(self.candidates(t, p))
                for t, parameters in enumerate(self.toolset.parameters)
                for p in parameters
                if p.name == name and p.required
            )
        return facts

    def pointer_features(self, candidates: Sequence[Candidate], name: str) -> Array:
        """One row for each value: where it stands and what is around it."""
        rows = np.zeros((len(candidates), POINTER_FEATURES), np.float32)
        said_words = frozenset().union(*(text_words(s.text) for s in self.said))
        last_part = max(
            (i for i, p in enumerate(self.parts) if isinstance(p, Said)), default=-1
        )
        used = [_values(call) for call in self.calls]
        name_words = frozenset(spaced(name).split())
        for row, candidate in zip(rows, candidates, strict=True):
            self._place(row, candidate)
            kind = _KINDS.get(candidate.kind)
            if kind is not None:
                row[BLOCKS * WIDTH + _NEIGHBOURS + kind] = 1.0
            place = row[-len(PlaceFact) :]
            place[PlaceFact.SAID] = bool(candidate.spans)
            place[PlaceFact.SAID_LAST] = any(
                part == last_part for part, _ in candidate.spans
            )
            place[PlaceFact.IN_RESULT] = bool(candidate.fields)
            place[PlaceFact.IN_LAST_RESULT] = self.last is not None and any(
                self.parts[part] is self.last for part, _ in candidate.fields
            )
            text = json.dumps(candidate.value, default=str)
            place[PlaceFact.USED] = any(text in values for values in used)
            place[PlaceFact.USED_LAST] = bool(used) and text in used[-1]
            place[PlaceFact.REPEATED] = len(candidate.spans) > 1
            if candidate.spans:
                part, span = candidate.spans[0]
                said = self.parts[part]
                assert isinstance(said, Said)
                place[PlaceFact.POSITION] = span.start / max(1, len(said.text))
                place[PlaceFact.LENGTH] = min(2.0, (span.end - span.start) / 40)
            if candidate.fields:
                part, fld = candidate.fields[0]
                called = self.parts[part]
                assert isinstance(called, Called)
                words = called.result.record_words.get(fld.record, frozenset())
                place[PlaceFact.RECORD_SAID] = len(words & said_words) / max(
                    1, len(words)
                )
                place[PlaceFact.EARLY_RECORD] = fld.record <= 2
                place[PlaceFact.SHARES_NAME] = bool(
                    frozenset(fld.key.split()) & name_words
                )
                place[PlaceFact.HOLDS_NAME] = name_words <= frozenset(fld.key.split())
            place[PlaceFact.ANY] = 1.0
        return rows

    # ---------------------------------------------------------------------------

    def _read_clauses(self) -> Clauses:
        blocks = [message_block(s, self._encoded[s.text]) for s in self.said]
        flags = [self._clause_flags(said) for said in self.said]
        # With nothing said, options that look at clauses still need one to look at.
        empty = 1 if blocks else 2
        return Clauses(
            [*blocks, *[_NOTHING] * empty],
            np.concatenate([*flags, np.zeros((empty, FLAGS), np.float32)]),
        )

    def _clause_flags(self, said: Said) -> Array:
        """Whether calls have taken a clause up, whether it holds more, its place."""
        flags = np.zeros((len(said.clauses), FLAGS), np.float32)
        used = {
            str(value)
            for call in self.calls
            for value in call.arguments.values()
            if isinstance(value, str | int | float) and len(str(value)) > 2
        }
        for row, clause in zip(flags, said.clauses, strict=True):
            text = said.text[clause.start : clause.end]
            row[0] = any(value in text or text in value for value in used)
            row[1] = any(value not in used and value in text for value in self._typed)
            row[2] = not row[0] and not row[1]
            row[3] = said is self.said[-1] and len(self.said) > 1
            row[4] = clause is said.clauses[0]
        return flags

    def _typed_values(self) -> list[str]:
        """Values that the user gave and that fit a parameter's pattern or format."""
        return list(
            dict.fromkeys(
                str(c.value)
                for t, parameters in enumerate(self.toolset.parameters)
                for p in parameters
                if p.values is None and ("pattern" in p.schema or "format" in p.schema)
                for c in self.candidates(t, p)
                if c.spans
            )
        )

    def _tool_facts(self) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Facts about each option, and which of them can be chosen at all."""
        count = 2 + len(self.toolset.tools)
        facts = np.zeros((count, len(ToolFact)), np.float32)
        facts[2:, ToolFact.IS_TOOL] = 1.0
        facts[FINISH, ToolFact.FINISH] = self.last is not None and self.last.ok
        facts[FINISH, ToolFact.IDLE] = self.last is None
        given = {v.strip('"') for call in self.calls for v in _values(call)}
        facts[FINISH, ToolFact.JUST_FAILED] = any(v not in given for v in self._typed)
        facts[ASK, ToolFact.ASK] = 1.0
        facts[ASK, ToolFact.ASKED] = len(self.said) > 1
        open_ = np.ones(count, bool)
        open_[ASK] = bool(self.toolset.askable)
        used = [(call.tool, _values(call)) for call in self.calls]
        for t, (tool, parameters) in enumerate(
            zip(self.toolset.tools, self.toolset.parameters, strict=True)
        ):
            row = facts[2 + t]
            mine = [values for name, values in used if name == tool.name]
            fresh, last_found, said = not mine, False, True
            for p in parameters:
                if p.values is not None or not p.required:
                    continue
                found = self.candidates(t, p)
                if not found:
                    open_[2 + t] = False
                    break
                fresh = fresh or any(
                    all(json.dumps(c.value, default=str) not in v for v in mine)
                    for c in found
                )
                said = said and any(c.spans for c in found)
                last_found = last_found or any(
                    self.parts[part] is self.last for c in found for part, _ in c.fields
                )
            row[ToolFact.FRESH] = fresh
            row[ToolFact.CALLED] = any(c.tool == tool.name and c.ok for c in self.calls)
            row[ToolFact.FAILED] = any(
                c.tool == tool.name and not c.ok for c in self.calls
            )
            if self.last is not None and self.last.tool == tool.name:
                row[ToolFact.JUST_CALLED] = self.last.ok
                row[ToolFact.JUST_FAILED] = not self.last.ok
            row[ToolFact.SAID], row[ToolFact.RESULT_FITS] = said, last_found
        if self.toolset.shared_rows:
            facts[FINISH, ToolFact.LEFT_OVER] = unused(self.said, given)
            for t, row in enumerate(facts[2:]):
                self._fit(t, row)
        return facts, open_

    def _fit(self, tool: int, row: Array) -> None:
        """How well a tool of which nothing else is known fits what was said."""
        row[ToolFact.NAMED] = named(self.toolset.names[tool], self.said)
        row[ToolFact.WEAKEST] = weakest_match(
            self.toolset.name_vectors[tool], self.clauses.blocks[: len(self.said)]
        )
        typed: list[list[Candidate]] = []
        free: list[list[Candidate]] = []
        given = []
        for p in self.toolset.parameters[tool]:
            if p.values is None:
                found = spoken(self.candidates(tool, p))
                (free if is_free(p.schema) else typed).append(found)
                said = bool(found)
            else:
                said = bool(self.value_facts(p)[:, ValueFact.SAID].any())
                row[ToolFact.LISTED] = row[ToolFact.LISTED] or said
            if p.required:
                given.append(said)
        row[ToolFact.LEFT_OVER] = left_over(self.said, [*typed, *free])
        row[ToolFact.LOOSE] = loose(self.said, typed, free)
        row[ToolFact.UNSAID] = 1.0 - sum(given) / len(given) if given else 0.0

    def _place(self, row: Array, candidate: Candidate) -> None:
        for part, span in candidate.spans:
            said = self.parts[part]
            assert isinstance(said, Said)
            encoded = self._encoded[said.text]
            share = np.float32(1 / len(candidate.spans))
            row[:WIDTH] += share * span_vector(said, encoded, span.start, span.end)
            clause = message_block(said, encoded).means[said.clause_of(span.start)]
            row[WIDTH : 2 * WIDTH] += share * clause
            if candidate.kind in ("clause", "sentence", "message"):
                continue
            around = neighbours(said.text, span.start, span.end)
            buckets = hashed(around, _NEIGHBOURS)
            row[BLOCKS * WIDTH + buckets] = 1.0
        keys = [fld.key for _, fld in candidate.fields]
        for key in dict.fromkeys(keys):
            row[2 * WIDTH : 3 * WIDTH] += EMBEDDING_SCALE * self._encoded[key].pooled


def texts_to_encode(parts: Sequence[Part]) -> Iterable[str]:
    """All texts of a conversation whose encoding a state needs."""
    for part in parts:
        if isinstance(part, Said):
            yield part.text
        else:
            yield from (field_.key for field_ in part.result.fields)


def _values(call: Called) -> frozenset[str]:
    return frozenset(json.dumps(v, default=str) for v in call.arguments.values())


def _happened(state: State) -> list[str]:
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
