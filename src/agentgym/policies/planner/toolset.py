"""The tools of a request, with what is encoded of them once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym.core.tools import Tool
from agentgym.policies.calls.candidates import (
    choices,
    described_values,
    is_choice,
    parameter_schemas,
    schema_key,
)
from agentgym.policies.calls.conversation import described, spaced
from agentgym.policies.planner.encoder import WIDTH, EncodedText
from agentgym.policies.planner.facts import (
    KIND_OF_TOOLS,
    kind_of_schema,
    kind_of_value,
    name_words,
)
from agentgym.policies.planner.heads import NO_ROW, Array, Options
from agentgym.policies.planner.vectors import word_vectors

FINISH, ASK = 0, 1
"""The first two options in every state; tools come after them."""

_OPTION_TEXTS = (
    "finish: nothing is left to do, give the final answer",
    "ask: ask the user for information that is missing",
)

_NO_WORDS = np.zeros((0, WIDTH), np.float32)

Slot = Callable[[str, str], int]
"""(head, name) -> row of the name."""
Encode = Callable[[Sequence[str]], Array]
Read = Callable[[str], EncodedText]


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
    query: Array
    values: list[Any] | None
    """All values, if the schema lists them; None if they must be found."""
    options: Options | None
    plain: bool
    """Whether the listed values have names only, and no descriptions."""
    slot: int = NO_ROW


class ToolSet:
    """The tools of a request with what is encoded of them once."""

    def __init__(
        self,
        key: str,
        tools: Sequence[Tool],
        encode: Encode,
        read: Read,
        tokens: int,
        shared_rows: bool = False,
    ) -> None:
        """Compiles tools. They have no rows of their own until `find_rows`.

        Args:
            key: Equal for equal tools.
            tools: In the order of the request.
            encode: Gives pooled embeddings.
            read: Gives those of single tokens.
            tokens: That the definitions cost in a prompt.
            shared_rows: Whether tools come and go, so that their names say nothing.
        """
        self.key = key
        self.complete = False
        """Whether everything has a row."""
        self.shared_rows = shared_rows
        self.tools = list(tools)
        self.tokens = tokens
        texts = [*_OPTION_TEXTS, *(f"{spaced(t.name)}. {t.description}" for t in tools)]
        self.options = Options(
            (key,), [encode(_sentences(text)) for text in texts], shared_rows
        )
        self.names = [name_words(tool.name) for tool in tools]
        self.name_vectors = [
            word_vectors(read(spaced(tool.name)), words) if shared_rows else _NO_WORDS
            for tool, words in zip(tools, self.names, strict=True)
        ]
        self.parameters: list[list[Parameter]] = [
            [
                _compile(key, tool, name, schema, encode, shared_rows)
                for name, schema in parameter_schemas(tool).items()
            ]
            for tool in tools
        ]
        # What can be asked for: anything that some tool requires.
        self.askable: dict[str, str] = {}
        for compiled in self.parameters:
            for p in compiled:
                if p.required and p.values is None and p.name not in self.askable:
                    self.askable[p.name] = described(p.name, p.schema)
        self.ask_options: Options | None = None
        if self.askable:
            asked = [f"{spaced(n)}: {d}" for n, d in self.askable.items()]
            self.ask_options = Options(
                (key, "<ask>"), [encode([text]) for text in asked], shared_rows
            )

    def find_rows(self, slot: Slot) -> None:
        """Notes the rows of everything that can be chosen, or those of its kind."""
        self.complete = True

        def row(head: str, name: str, kind: str) -> int:
            found = slot(head, kind if self.shared_rows else name)
            self.complete &= found != NO_ROW
            return found

        self.options.slots[:] = [
            *(row("tool", n, n) for n in ("<finish>", "<ask>")),
            *(row("tool", t.name, KIND_OF_TOOLS) for t in self.tools),
        ]
        for tool, parameters in zip(self.tools, self.parameters, strict=True):
            for p in parameters:
                place = f"{tool.name}.{p.name}"
                if p.options is not None and p.values is not None:
                    p.options.slots[:] = [
                        row("value", f"{place}={v}", kind_of_value(v, v is ABSENT))
                        for v in p.values
                    ]
                p.slot = row("pointer", place, kind_of_schema(p.schema))
        if self.ask_options is not None:
            self.ask_options.slots[:] = [
                row("value", f"<ask>={name}", "<ask>") for name in self.askable
            ]

    @property
    def size(self) -> int:
        """Bytes that the encoded texts take."""
        parameters = [p for compiled in self.parameters for p in compiled]
        listed = [self.options, self.ask_options, *(p.options for p in parameters)]
        vectors = [*(p.query for p in parameters), *self.name_vectors]
        return sum(v.nbytes for v in vectors) + sum(
            o.sentences.nbytes + o.embeddings.nbytes for o in listed if o is not None
        )


def _compile(
    key: str,
    tool: Tool,
    name: str,
    schema: Mapping[str, Any],
    encode: Encode,
    shared_rows: bool,
) -> Parameter:
    about = f"{spaced(name)}: {schema.get('description') or ''}"
    required = name in tool.required
    values: list[Any] | None = None
    options = None
    about_values = described_values(schema)
    if is_choice(schema) and (listed := choices(schema, tool.parameters)):
        values = listed + ([] if required else [ABSENT])
        texts = [
            [
                f"{spaced(name)}: {spaced(str(v))}",
                *(s for w, d in about_values if w == v and d for s in _sentences(d)),
            ]
            for v in values
        ]
        options = Options(
            (key, tool.name, name), [encode(text) for text in texts], shared_rows
        )
    return Parameter(
        name,
        schema,
        schema_key(schema),
        required,
        encode([about])[0],
        values,
        options,
        plain=not any(description for _, description in about_values),
    )


def _sentences(text: str) -> list[str]:
    found = [s.strip() for s in re.split(r"(?<=[.!?:;])\s+", text)]
    return [s for s in found if s] or [text]
