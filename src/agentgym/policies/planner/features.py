"""What the heads see of a state: clauses, history, facts and places of values."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym.core.tools import Tool
from agentgym.policies.planner.candidates import (
    Candidate,
    choices,
    find_candidates,
    is_choice,
    schema_key,
)
from agentgym.policies.planner.conversation import (
    Called,
    Field,
    Part,
    Said,
    spaced,
    text_words,
)
from agentgym.policies.planner.encoder import WIDTH, EncodedText
from agentgym.policies.planner.heads import (
    FLAGS,
    HISTORY,
    Array,
    Clauses,
    Indices,
    Options,
)

FINISH, ASK = 0, 1
"""The first two options in every state; tools come after them."""

_OPTION_TEXTS = (
    "finish: nothing is left to do, give the final answer",
    "ask: ask the user for information that is missing",
)

TOOL_FACTS = (
    "fresh",  # some value for its parameters has not been used with it yet
    "called",
    "failed",
    "just_called",
    "just_failed",  # of finishing: the user gave values that no call has used
    "said",  # the user gave values for all its parameters
    "result_fits",  # the last result gave a value for one of its parameters
    "tool",
    "finish",  # finishing, after a call that succeeded
    "idle",  # finishing, without any call
    "ask",
    "asked",  # asking, after an answer
)
"""Facts about the options, by column."""
VALUE_FACTS = 4

_KINDS = {
    kind: i
    for i, kind in enumerate(
        "pattern format named quoted id clause sentence message number field default "
        "list object absent".split()
    )
}
_SMALL = len(_KINDS) + 14
_NEIGHBOURS = 128
BLOCKS = 3
"""Encoded parts of a value's features: its span, its clause, its field's name."""
POINTER_FEATURES = BLOCKS * WIDTH + _NEIGHBOURS + _SMALL

_EMBEDDING_SCALE = np.float32(4.0)
_WORD = re.compile(r"[A-Za-z']+|[().,:?!]")


class _Absent:
    """Stands for leaving an optional parameter out."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Any = _Absent()


@dataclass(slots=True, eq=False)
class Parameter:
    """A parameter of a tool, compiled."""

    name: str
    schema: Mapping[str, Any]
    key: str
    required: bool
    slot: int
    query: Array
    values: list[Any] | None
    """All values, if the schema lists them; None if they must be found."""
    options: Options | None


class ToolSet:
    """The tools of a request with what is encoded of them once."""

    def __init__(
        self, tools: Sequence[Tool], slot: Any, encode: Any, tokens: int
    ) -> None:
        """Compiles tools.

        Args:
            tools: In the order of the request.
            slot: `(head, name) -> int`, gives each thing a row of its own.
            encode: `(texts) -> Array`, pooled embeddings.
            tokens: That the definitions cost in a prompt.
        """
        self.tools = list(tools)
        self.tokens = tokens
        texts = [*_OPTION_TEXTS, *(f"{spaced(t.name)}. {t.description}" for t in tools)]
        names = ["<finish>", "<ask>", *(t.name for t in tools)]
        self.options = Options(
            [encode(_sentences(text)) for text in texts],
            np.array([slot("tool", n) for n in names], np.int64),
        )
        self.parameters: list[list[Parameter]] = [
            [
                _compile(tool, name, schema, slot, encode)
                for name, schema in tool.properties.items()
            ]
            for tool in tools
        ]
        # What can be asked for: anything that some tool must be told.
        self.askable: dict[str, str] = {}
        for compiled in self.parameters:
            for p in compiled:
                if p.required and p.values is None and p.name not in self.askable:
                    about = str(p.schema.get("description") or spaced(p.name))
                    self.askable[p.name] = about
        self.ask_options: Options | None = None
        if self.askable:
            about = [f"{spaced(n)}: {d}" for n, d in self.askable.items()]
            slots = [slot("value", f"<ask>={n}") for n in self.askable]
            self.ask_options = Options(
                [encode([text]) for text in about], np.array(slots, np.int64)
            )


def tool_prior(**weights: float) -> tuple[float, ...]:
    """Weights of the facts about options, zero where not given."""
    return tuple(weights.get(name, 0.0) for name in TOOL_FACTS)


def _compile(
    tool: Tool, name: str, schema: Mapping[str, Any], slot: Any, encode: Any
) -> Parameter:
    about = f"{spaced(name)}: {schema.get('description') or ''}"
    required = name in tool.required
    values: list[Any] | None = None
    options = None
    if is_choice(schema):
        values = choices(schema) + ([] if required else [ABSENT])
        texts = [f"{spaced(name)}: {spaced(str(v))}" for v in values]
        slots = [slot("value", f"{tool.name}.{name}={v}") for v in values]
        options = Options([encode([text]) for text in texts], np.array(slots, np.int64))
    return Parameter(
        name,
        schema,
        schema_key(schema),
        required,
        slot("pointer", f"{tool.name}.{name}"),
        encode([about])[0],
        values,
        options,
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
        self._calls = [p for p in parts if isinstance(p, Called)]
        self._said = [p for p in parts if isinstance(p, Said)]
        self.last = self._calls[-1] if self._calls else None
        self._typed = self._typed_values()
        self.clauses = self._read_clauses()
        self.history = self._history()
        self.facts, self.open = self._tool_facts()
        self.distributions: dict[Any, Any] = {}
        """Kept by the policy for as long as its weights stay the same."""
        self.untried: dict[Any, list[int]] = {}
        """Kept by the policy: what siblings have not explored yet."""
        self.features: dict[Any, Array] = {}
        """Kept by the policy: what `pointer_features` said of each parameter."""

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

    def value_facts(self, values: Sequence[Any]) -> Array:
        """Facts about listed values: do they stand in what was said or found?"""
        facts = np.zeros((len(values), VALUE_FACTS), np.float32)
        facts[:, 3] = 1.0
        said = frozenset().union(*(text_words(s.text) for s in self._said))
        found = {
            str(f.value).lower()
            for f in (self.last.result.fields if self.last else ())
            if isinstance(f.value, str)
        }
        for i, value in enumerate(values):
            words = text_words(spaced(str(value)))
            facts[i, 0] = bool(words) and words <= said
            facts[i, 1] = str(value).lower() in found
            facts[i, 2] = value is ABSENT
        return facts

    def ask_facts(self) -> Array:
        """Facts about what could be asked for: is it known already?"""
        facts = np.zeros((len(self.toolset.askable), VALUE_FACTS), np.float32)
        facts[:, 3] = 1.0
        for i, name in enumerate(self.toolset.askable):
            facts[i, 0] = any(
                bool(self.candidates(t, p))
                for t, parameters in enumerate(self.toolset.parameters)
                for p in parameters
                if p.name == name and p.required
            )
        return facts

    def pointer_features(self, candidates: Sequence[Candidate], name: str) -> Array:
        """One row for each value: where it stands and what is around it."""
        rows = np.zeros((len(candidates), POINTER_FEATURES), np.float32)
        said_words = frozenset().union(*(text_words(s.text) for s in self._said))
        last_part = max(
            (i for i, p in enumerate(self.parts) if isinstance(p, Said)), default=-1
        )
        used = [_values(call) for call in self._calls]
        name_words = frozenset(spaced(name).split())
        for row, candidate in zip(rows, candidates, strict=True):
            self._place(row, candidate)
            small = row[BLOCKS * WIDTH + _NEIGHBOURS :]
            kind = _KINDS.get(candidate.kind)
            if kind is not None:
                small[kind] = 1.0
            small = small[len(_KINDS) :]
            small[0] = bool(candidate.spans)
            small[1] = any(part == last_part for part, _ in candidate.spans)
            small[2] = bool(candidate.fields)
            small[3] = self.last is not None and any(
                self.parts[part] is self.last for part, _ in candidate.fields
            )
            text = json.dumps(candidate.value, default=str)
            small[4] = any(text in values for values in used)
            small[5] = bool(used) and text in used[-1]
            small[6] = len(candidate.spans) > 1
            if candidate.spans:
                part, span = candidate.spans[0]
                said = self.parts[part]
                assert isinstance(said, Said)
                small[7] = span.start / max(1, len(said.text))
                small[8] = min(2.0, (span.end - span.start) / 40)
            if candidate.fields:
                part, fld = candidate.fields[0]
                called = self.parts[part]
                assert isinstance(called, Called)
                words = called.result.record_words.get(fld.record, frozenset())
                small[9] = len(words & said_words) / max(1, len(words))
                small[10] = fld.record <= 2
                small[11] = bool(frozenset(fld.key.split()) & name_words)
                small[12] = name_words <= frozenset(fld.key.split())
            small[13] = 1.0
        return rows

    # ---------------------------------------------------------------------------

    def _read_clauses(self) -> Clauses:
        means, tokens, starts, flags, count = [], [], [], [], 0
        for said in self._said:
            encoded = self._encoded[said.text]
            means.append(clause_vectors(said, encoded))
            flags.append(self._clause_flags(said))
            for rows in clause_tokens(said, encoded):
                tokens.append(rows)
                starts.append(count)
                count += len(rows)
        nothing = np.zeros((1, WIDTH), np.float32)
        # With nothing said, options that look at clauses still need one to look at.
        rows = 1 if means else 2
        return Clauses(
            np.concatenate([*means, *[nothing] * rows]),
            np.concatenate([*tokens, *[nothing] * rows]),
            np.array([*starts, *range(count, count + rows)], np.int64),
            np.concatenate([*flags, np.zeros((rows, FLAGS), np.float32)]),
        )

    def _clause_flags(self, said: Said) -> Array:
        """Whether calls have taken up a clause, whether it holds more, and its place."""
        flags = np.zeros((len(said.clauses), FLAGS), np.float32)
        used = {
            str(value)
            for call in self._calls
            for value in call.arguments.values()
            if isinstance(value, str | int | float) and len(str(value)) > 2
        }
        for row, clause in zip(flags, said.clauses, strict=True):
            text = said.text[clause.start : clause.end]
            row[0] = any(value in text or text in value for value in used)
            row[1] = any(value not in used and value in text for value in self._typed)
            row[2] = not row[0] and not row[1]
            row[3] = said is self._said[-1] and len(self._said) > 1
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

    def _history(self) -> Indices:
        names: list[str] = []
        if self.last is None:
            names.append("start")
        else:
            names.append(f"last:{self.last.tool}")
            names.append(f"last:{'ok' if self.last.ok else 'failed'}")
            if self.last.result.error:
                names.append(f"error:{self.last.result.error}")
            names += (f"last:{self.last.tool}.{fact}" for fact in _facts_of(self.last))
        for call in self._calls:
            names.append(f"called:{call.tool}:{'ok' if call.ok else 'failed'}")
            if call is not self.last:
                names += (f"ever:{call.tool}.{fact}" for fact in _facts_of(call))
        names.append(f"turns:{min(len(self._said), 3)}")
        names.append(f"calls:{min(len(self._calls), 4)}")
        known = set()
        for t, parameters in enumerate(self.toolset.parameters):
            for p in parameters:
                if p.required and p.values is None:
                    found = self.candidates(t, p)
                    kinds = {c.kind for c in found} & {"named", "quoted", "field"}
                    known.add(f"known:{p.name}:{min(2, len(found))}")
                    known.update(f"known:{p.name}:{kind}" for kind in kinds)
        names += sorted(known)
        return hashed(names, HISTORY)

    def _tool_facts(self) -> tuple[Array, Any]:
        """Facts about each option, and which of them can be chosen at all."""
        count = 2 + len(self.toolset.tools)
        facts = np.zeros((count, len(TOOL_FACTS)), np.float32)
        facts[2:, 7] = 1.0
        facts[FINISH, 8] = self.last is not None and self.last.ok
        facts[FINISH, 9] = self.last is None
        used = {v.strip('"') for call in self._calls for v in _values(call)}
        facts[FINISH, 4] = any(value not in used for value in self._typed)
        facts[ASK, 10] = 1.0
        facts[ASK, 11] = len(self._said) > 1
        open_ = np.ones(count, bool)
        open_[ASK] = bool(self.toolset.askable)
        used = [(call.tool, _values(call)) for call in self._calls]
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
            row[0] = fresh
            row[1] = any(c.tool == tool.name and c.ok for c in self._calls)
            row[2] = any(c.tool == tool.name and not c.ok for c in self._calls)
            if self.last is not None and self.last.tool == tool.name:
                row[3], row[4] = self.last.ok, not self.last.ok
            row[5], row[6] = said, last_found
        return facts, open_

    def _place(self, row: Array, candidate: Candidate) -> None:
        for part, span in candidate.spans:
            said = self.parts[part]
            assert isinstance(said, Said)
            encoded = self._encoded[said.text]
            share = np.float32(1 / len(candidate.spans))
            row[:WIDTH] += share * _span_vector(encoded, span.start, span.end)
            clause = clause_vectors(said, encoded)[said.clause_of(span.start), :WIDTH]
            row[WIDTH : 2 * WIDTH] += share * clause
            if candidate.kind in ("clause", "sentence", "message"):
                continue
            around = neighbours(said.text, span.start, span.end)
            buckets = hashed(around, _NEIGHBOURS)
            row[BLOCKS * WIDTH + buckets] = 1.0
        keys = [fld.key for _, fld in candidate.fields]
        for key in dict.fromkeys(keys):
            row[2 * WIDTH : 3 * WIDTH] += _EMBEDDING_SCALE * self._encoded[key].pooled


def _sentences(text: str) -> list[str]:
    found = [s.strip() for s in re.split(r"(?<=[.!?:;])\s+", text)]
    return [s for s in found if s] or [text]


def texts_to_encode(parts: Sequence[Part]) -> Iterable[str]:
    """All texts of a conversation whose encoding a state needs."""
    for part in parts:
        if isinstance(part, Said):
            yield part.text
        else:
            yield from (field_.key for field_ in part.result.fields)


def hashed(names: Iterable[str], buckets: int) -> Indices:
    """Distinct buckets of the names, sorted."""
    return np.array(
        sorted({zlib.crc32(name.encode()) % buckets for name in names}), np.int64
    )


def neighbours(text: str, start: int, end: int) -> list[str]:
    """The words right before and after a span."""
    before = _WORD.findall(text[max(0, start - 40) : start].lower())[-2:]
    after = _WORD.findall(text[end : end + 30].lower())[:1]
    names = [f"-1 {before[-1]}" if before else "-1 ^"]
    if len(before) > 1:
        names.append(f"-2 {' '.join(before)}")
    names += [f"+1 {word}" for word in after]
    return names


def clause_vectors(said: Said, encoded: EncodedText) -> Array:
    """One vector for each clause: the mean over its tokens, of fixed length."""
    known: Array | None = said.vectors
    if known is None:
        spans = [(c.start, c.end) for c in said.clauses]
        known = np.zeros((len(spans), WIDTH), np.float32)
        for row, (start, end) in zip(known, spans, strict=True):
            row[:] = _span_vector(encoded, start, end)
        said.vectors = known
    return known


def clause_tokens(said: Said, encoded: EncodedText) -> list[Array]:
    """The tokens of each clause, each of fixed length."""
    known: list[Array] | None = said.tokens
    if known is None:
        known = []
        for clause in said.clauses:
            inside = _inside(encoded, clause.start, clause.end)
            rows = encoded.hidden[inside] if inside.any() else encoded.hidden[:1]
            if not len(rows):
                rows = np.zeros((1, WIDTH), np.float32)
            norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
            known.append(_EMBEDDING_SCALE / np.maximum(norms, 1e-6) * rows)
        said.tokens = known
    return known


def _inside(encoded: EncodedText, start: int, end: int) -> Any:
    return (encoded.offsets[:, 0] < end) & (encoded.offsets[:, 1] > start)


def _span_vector(encoded: EncodedText, start: int, end: int) -> Array:
    inside = _inside(encoded, start, end)
    if not inside.any():
        return np.zeros(WIDTH, np.float32)
    vector: Array = encoded.hidden[inside].mean(axis=0)
    norm = np.sqrt((vector * vector).sum())
    return (_EMBEDDING_SCALE / max(norm, np.float32(1e-6))) * vector


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


def _values(call: Called) -> frozenset[str]:
    return frozenset(json.dumps(v, default=str) for v in call.arguments.values())
