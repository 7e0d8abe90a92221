"""The flat view of an environment that Stable-Baselines3's PPO needs; no benchmark.

See `planner_vs_sb3.py` for what it is and why. Needs no Stable-Baselines3.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentgym.core.task import Message, Task
from agentgym.core.tools import Tool, ToolCall
from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Sampling
from agentgym.policies.calls.candidates import choices, find_candidates, is_choice
from agentgym.policies.calls.conversation import Called, Part, Reader, Said
from agentgym.policies.planner.encoder import WIDTH, SentenceEncoder
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import Environment

HISTORY = 256

# Places for the values of one parameter, by what the schema lets them be.
TYPED_PLACES, NUMBER_PLACES = 3, 6
TEXT_PLACES = {"message": 1, "sentence": 2, "clause": 2, "named": 3}

INVALID: Message = {"tool_calls": ["no candidate at this place"]}


class Layout:
    """The list of candidate decisions: which place stands for what."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tools
        asked: dict[str, str] = {}
        for tool in tools:
            for name, schema in tool.properties.items():
                if name in tool.required and not is_choice(schema):
                    asked.setdefault(name, str(schema.get("description") or name))
        self.questions = [
            f"Could you please tell me the {about}?" for about in asked.values()
        ]
        self.size = 1 + len(self.questions)
        self.starts = []
        for tool in tools:
            self.starts.append(self.size)
            self.size += int(
                np.prod([self._width(s) for s in tool.properties.values()])
            )

    def decisions(self, parts: Sequence[Part]) -> list[Message | None]:
        """The assistant message at every place; None where there is none."""
        made: list[Message | None] = [None] * self.size
        made[0] = {"role": "assistant", "content": "It is done."}
        for i, question in enumerate(self.questions):
            made[1 + i] = {"role": "assistant", "content": question}
        calls = sum(isinstance(part, Called) for part in parts)
        for tool, start in zip(self.tools, self.starts, strict=True):
            values = [
                self._values(schema, parts, tool) for schema in tool.properties.values()
            ]
            for i, combination in enumerate(itertools.product(*values)):
                if None in combination:
                    continue
                arguments = dict(zip(tool.properties, combination, strict=True))
                call = ToolCall(tool.name, arguments, f"call_{calls}")
                made[start + i] = {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call.to_openai()],
                }
        return made

    def _width(self, schema: dict[str, Any]) -> int:
        if is_choice(schema):
            return len(choices(schema))
        if schema.get("type") in ("number", "integer"):
            return NUMBER_PLACES
        if "pattern" in schema or "format" in schema:
            return TYPED_PLACES
        return sum(TEXT_PLACES.values())

    def _values(
        self, schema: dict[str, Any], parts: Sequence[Part], tool: Tool
    ) -> list[Any]:
        if is_choice(schema):
            return choices(schema)
        found = find_candidates(schema, parts, tool.parameters)
        width = self._width(schema)
        if width != sum(TEXT_PLACES.values()):
            values = [candidate.value for candidate in found[:width]]
            return values + [None] * (width - len(values))
        values = []
        for kind, places in TEXT_PLACES.items():
            of_kind = [c.value for c in found if c.kind == kind][:places]
            values += of_kind + [None] * (places - len(of_kind))
        return values


class Eyes:
    """Makes flat observations of conversations; texts are encoded once."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.reader = Reader()
        self.encoder = SentenceEncoder.load()
        self.size = 3 * WIDTH + HISTORY + layout.size
        self._known: dict[str, Any] = {}

    def encode(self, texts: Sequence[str]) -> None:
        """Encodes texts in one batch, ahead of their use."""
        if len(self._known) > 50_000:
            self._known.clear()
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        for encoded in self.encoder.encode(missing):
            self._known[encoded.text] = encoded.pooled

    def look(self, messages: Sequence[Message]) -> tuple[Any, list[Message | None]]:
        """The observation, and the decisions that can be taken."""
        parts = self.reader.read(messages)
        said = [part.text for part in parts if isinstance(part, Said)]
        calls = [part for part in parts if isinstance(part, Called)]
        texts = [said[0] if said else "", said[-1] if len(said) > 1 else "", ""]
        if calls:
            texts[2] = "; ".join(_facts(calls[-1])) or "nothing"
        self.encode([text for text in texts if text])
        seen = np.zeros(self.size, np.float32)
        for i, text in enumerate(texts):
            if text:
                # Unit vectors of 384 numbers are small beside bits.
                seen[i * WIDTH : (i + 1) * WIDTH] = 4.0 * self._known[text]
        for name in _history(calls, len(said)):
            seen[3 * WIDTH + zlib.crc32(name.encode()) % HISTORY] = 1.0
        decisions = self.layout.decisions(parts)
        seen[3 * WIDTH + HISTORY :] = [decision is not None for decision in decisions]
        return seen, decisions


def _facts(call: Called) -> Iterator[str]:
    for field in call.result.fields:
        value = field.value
        categorical = isinstance(value, bool) or (
            isinstance(value, str)
            and len(value) <= 24
            and value.replace("_", "").isalpha()
        )
        yield f"{field.key}: {value}" if categorical else field.key
    if call.result.error:
        yield f"error: {call.result.error}"


def _history(calls: Sequence[Called], turns: int) -> Iterator[str]:
    yield f"turns {min(turns, 3)}"
    yield f"calls {min(len(calls), 4)}"
    for call in calls:
        yield f"{call.tool} {call.ok}"
    if calls:
        yield f"last {calls[-1].tool} {calls[-1].ok}"
        yield from (f"last {calls[-1].tool} {fact}" for fact in _facts(calls[-1]))


class Stream:
    """Training tasks without end, each `repeats` times; counts the episodes.

    The planner plays every task in a group of siblings, so that the task's text is
    encoded once for all of them. PPO is given the same advantage.
    """

    def __init__(
        self, scenario: Scenario, seed: int, eyes: Eyes, repeats: int = 8
    ) -> None:
        self.scenario, self.seed = scenario, seed
        self.eyes, self.repeats = eyes, repeats
        self.drawn = 0
        self._waiting: list[Task] = []

    def __next__(self) -> Task:
        """The next task; 64 are drawn and their openings encoded at once."""
        if not self._waiting:
            seed = self.seed * 1_000_003 + self.drawn + 1
            tasks = self.scenario.tasks("train", seed, 64)
            self.eyes.encode([str(task.messages[-1]["content"]) for task in tasks])
            self._waiting = [task for task in tasks for _ in range(self.repeats)]
            random.Random(seed).shuffle(self._waiting)
        self.drawn += 1
        return self._waiting.pop()


class FlatEnvironment(gymnasium.Env[Any, Any]):
    """The scenario's environment as a vector and a number."""

    def __init__(self, environment: Environment, stream: Stream, eyes: Eyes) -> None:
        self.environment, self.stream, self.eyes = environment, stream, eyes
        self.observation_space = gymnasium.spaces.Box(-8, 8, (eyes.size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(eyes.layout.size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode of the next task."""
        super().reset(seed=seed)
        self.environment.reset_task(next(self.stream))
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes the decision at a place of the list."""
        message = self._decisions[int(action)] or INVALID
        _, reward, terminated, truncated, _ = self.environment.step(json.dumps(message))
        # Punished for wrong decisions, PPO learns to give up at once.
        return self._look(), max(0.0, reward), terminated, truncated, {}

    def _look(self) -> Any:
        seen, self._decisions = self.eyes.look(self.environment.messages)
        return seen


class PPOPlayer:
    """PPO as far as `evaluate` needs a policy, so that both are measured alike."""

    def __init__(self, model: Any, eyes: Eyes) -> None:
        self.model, self.eyes = model, eyes

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        """Takes the likeliest place of the list."""
        looks = [self.eyes.look(request.messages) for request in requests]
        places, _ = self.model.predict(
            np.stack([seen for seen, _ in looks]), deterministic=True
        )
        return [
            Decision(decisions[int(place)] or INVALID, "call")
            for place, (_, decisions) in zip(places, looks, strict=True)
        ]
