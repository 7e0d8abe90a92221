"""A gymnasium environment with a conversation and tools that really run."""

from __future__ import annotations

import hashlib
import json
import random
import re
import string
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from agentgym.core.task import Message, Task
from agentgym.core.tools import (
    FailureKind,
    Tool,
    ToolCall,
    ToolResult,
    ToolRunner,
    parse_calls,
    tool_map,
)
from agentgym.errors import ScenarioError

_MAX_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """A scenario's judgement of one decision.

    Attributes:
        correct: Whether the decision was right. A right call that failed because of an
            injected fault is still right: the agent should retry it.
        failure: The kind of failure, if the decision was wrong.
        harmful: The decision did irreversible damage; the episode ends.
        wrong_arguments: Names of the call's parameters with wrong or missing values;
            None if the scenario doesn't tell. If it does, the agent learns each
            parameter separately.
    """

    correct: bool
    failure: FailureKind | None = None
    harmful: bool = False
    wrong_arguments: frozenset[str] | None = None


RIGHT = Verdict(True)

_COURTESY = re.compile(
    r"\b(any|some)thing (else|more)\b|\bany (more|other|further)\b", re.IGNORECASE
)


def questions(content: str) -> list[str]:
    """The questions in a message that ask the user for something.

    Polite closing questions, such as "Anything else?", don't count.
    """
    sentences = re.split(r"(?<=[.!?])\s+", content)
    asking = (s for s in sentences if s.rstrip(" \n\"'*_)").endswith("?"))
    return [s for s in asking if not _COURTESY.search(s)]


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """The outcome of one assistant message.

    Attributes:
        reply: What the user answered; None if nothing.
    """

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    verdict: Verdict
    done: bool
    reply: str | None = None


class Environment(gymnasium.Env[str, str]):
    """One conversation at a time, each in a fresh world.

    An observation is the conversation as a JSON list of chat messages; an action is one
    assistant message as JSON, as in chat completion APIs. Trainers skip the JSON and
    use `reset_task`, `messages` and `act`.

    An episode ends when the agent closes the conversation, after `max_steps`
    decisions, after `patience` wrong decisions, or after a harmful one.

    Subclasses define the world and the judgement: `tools`, `make_world`, `judge_call`,
    `judge_message`, `reply`, `outcome`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        max_steps: int = 10,
        patience: int = 2,
        tool_failure_rate: float = 0.0,
        runner: ToolRunner | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Creates an environment with the given tasks.

        Args:
            tasks: The tasks that `reset` chooses from.
            max_steps: Maximum number of decisions in an episode.
            patience: Number of wrong decisions that ends an episode.
            tool_failure_rate: Share of valid calls that fail on purpose before they
                reach the tool; half of these are timeouts.
            runner: Runs the tools; environments may share one.
            render_mode: "ansi" renders the conversation as text.
        """
        if not 0.0 <= tool_failure_rate < 1.0:
            raise ScenarioError("tool_failure_rate must be at least 0 and below 1.")
        if patience < 1:
            raise ScenarioError("patience must be at least 1.")
        self.tasks = tasks
        self.max_steps = max_steps
        self.patience = patience
        self.tool_failure_rate = tool_failure_rate
        self.runner = runner or ToolRunner()
        self.render_mode = render_mode
        text = gymnasium.spaces.Text(
            max_length=_MAX_TEXT, min_length=0, charset=string.printable
        )
        self.observation_space = text
        self.action_space = gymnasium.spaces.Text(
            max_length=256, min_length=0, charset=string.printable
        )
        self.offer(self.tools())
        self.task: Task | None = None
        self.world: Any = None
        self.messages: list[Message] = []

    # What a scenario defines ---------------------------------------------------

    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """All tools of the environment; read once."""

    @abstractmethod
    def make_world(self, task: Task) -> Any:
        """Returns a fresh world for the task. It must depend on the task only."""

    def close_world(self, world: Any) -> None:
        """Releases the resources of a world."""

    @abstractmethod
    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        """Judges a call after it ran. Called once per call, in order."""

    @abstractmethod
    def judge_message(self, content: str) -> Verdict:
        """Judges a message to the user, before the user replies."""

    def reply(self, content: str) -> str | None:
        """Returns the user's reply to a message; None closes the conversation."""
        return None

    @abstractmethod
    def outcome(self) -> tuple[bool, float]:
        """At the end of an episode: whether the task is solved, and progress (0-1)."""

    # What agents and trainers use ----------------------------------------------

    @property
    def state_space(self) -> gymnasium.Space[str]:
        """Alias of `observation_space`."""
        return self.observation_space

    @property
    def tool_list(self) -> Sequence[Tool]:
        """The tools that the agent may call."""
        return self._tool_list

    @property
    def closed(self) -> bool:
        """Whether the agent spoke last and asked nothing."""
        last = self.messages[-1]
        return last["role"] == "assistant" and not questions(last["content"] or "")

    @property
    def state_key(self) -> str:
        """A key for the conversation so far, unique within its task."""
        return self._digest.hexdigest()

    def tools_of(self, task: Task) -> Sequence[Tool]:
        """The tools with which a task's episode opens; override if tasks differ."""
        return self.tool_list

    def offer(self, tools: Sequence[Tool]) -> None:
        """Replaces the tools, for scenarios whose tools differ between tasks."""
        self._tools = tool_map(tools)
        self._tool_list = list(self._tools.values())

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """Starts an episode of the task; the seed determines the injected faults."""
        self.release()
        self.task = task
        self.world = self.make_world(task)
        self.messages = []
        self._digest = hashlib.blake2b(digest_size=12)
        for message in task.messages:
            self._append(dict(message))
        self._faults = random.Random(seed) if self.tool_failure_rate else None
        self._mistakes = self._step = 0
        self.done = self._cut_off = False

    def act(self, message: Mapping[str, Any]) -> ActOutcome:
        """Processes one assistant message: runs its calls or gets the user's reply."""
        if self.world is None or self.done:
            raise ScenarioError("The episode is over. Call reset first.")
        self._step += 1
        calls: list[ToolCall] = []
        results: list[ToolResult] = []
        try:
            calls = parse_calls(message)
        except ValueError as error:
            verdict = Verdict(False, FailureKind.INVALID_CALL)
            self._append({"role": "assistant", "content": str(message)[:1000]})
            self._append({"role": "user", "content": f"(invalid call: {error})"})
            closed = False
        else:
            # The role comes last, so that a message can't pose as the user's.
            self._append({**message, "role": "assistant"})
            verdict, closed = (
                (self._run_calls(calls, results), False)
                if calls
                else self._speak(str(message.get("content") or ""))
            )
        self._mistakes += not verdict.correct
        ended = closed or verdict.harmful or self._mistakes >= self.patience
        self._cut_off = not ended and self._step >= self.max_steps
        self.done = ended or self._cut_off
        last = self.messages[-1]
        reply = str(last["content"]) if last["role"] == "user" else None
        return ActOutcome(tuple(calls), tuple(results), verdict, self.done, reply)

    # The gymnasium interface ---------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts an episode of `options["task"]`, or of a task drawn with the seed."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if task is None:
            if not self.tasks:
                raise ScenarioError("The environment has no tasks to draw from.")
            task = self.tasks[int(self.np_random.integers(len(self.tasks)))]
        self.reset_task(task, int(self.np_random.integers(2**31)))
        return self._observation(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Processes one assistant message as JSON; invalid JSON is a failure.

        The reward judges this decision: +1 if right, -1 if wrong, plus the outcome at
        the end. Trainers use `Scenario.broadcast_rewards` instead.
        """
        try:
            message = json.loads(action)
        except (TypeError, json.JSONDecodeError, RecursionError):
            message = None
        if not isinstance(message, dict):
            message = {"tool_calls": ["no JSON object"]}
        result = self.act(message)
        reward = 1.0 if result.verdict.correct else -1.0
        if result.done:
            reward += self.outcome()[1]
        info = self._info()
        info["failure"] = result.verdict.failure
        terminated = result.done and not self._cut_off
        truncated = result.done and self._cut_off
        return self._observation(), reward, terminated, truncated, info

    def render(self) -> str | None:
        """Returns the conversation as text, in render mode "ansi"."""
        if self.render_mode != "ansi":
            return None
        lines = []
        for message in self.messages:
            for call in message.get("tool_calls") or ():
                function = call["function"]
                lines.append(f"agent -> {function['name']}({function['arguments']})")
            if message.get("content"):
                lines.append(f"{message['role']}: {message['content']}")
        return "\n".join(lines)

    def release(self) -> None:
        """Releases the world of an episode that is over and judged."""
        if self.world is not None:
            self.close_world(self.world)
            self.world = None

    def close(self) -> None:
        """Releases the world and the worker thread."""
        self.release()
        self.runner.close()

    # ---------------------------------------------------------------------------

    def _run_calls(self, calls: list[ToolCall], results: list[ToolResult]) -> Verdict:
        verdicts = []
        for call in calls:
            result = self._fault(call) or self.runner.run(self._tools, call, self.world)
            results.append(result)
            verdicts.append(self._judged(call, result))
            self._append(
                {"role": "tool", "tool_call_id": call.id, "content": result.content}
            )
        if len(verdicts) == 1:
            return verdicts[0]
        # Leaves out wrong arguments: they don't say which call they belong to.
        worst = next((v for v in verdicts if not v.correct), RIGHT)
        return Verdict(worst.correct, worst.failure, any(v.harmful for v in verdicts))

    def _judged(self, call: ToolCall, result: ToolResult) -> Verdict:
        """The judge's verdict, after checking the names of the wrong arguments."""
        verdict = self.judge_call(call, result)
        if verdict.wrong_arguments:
            tool = self._tools.get(call.name)
            known = {*(tool.properties if tool else ()), *call.arguments}
            strange = sorted(verdict.wrong_arguments - known)
            if strange:
                raise ScenarioError(
                    f"judge_call returned wrong argument '{strange[0]}' for tool "
                    f"'{call.name}', which has no such parameter."
                )
        return verdict

    def _speak(self, content: str) -> tuple[Verdict, bool]:
        verdict = self.judge_message(content)
        answer = self.reply(content)
        if answer is None:
            return verdict, True
        self._append({"role": "user", "content": answer})
        return verdict, False

    def _fault(self, call: ToolCall) -> ToolResult | None:
        """An injected failure, at times; calls that are invalid fail anyway."""
        if self._faults is None or self._faults.random() >= self.tool_failure_rate:
            return None
        kind, text = (
            (FailureKind.TIMEOUT, "the service did not answer in time")
            if self._faults.random() < 0.5
            else (FailureKind.TOOL_ERROR, "the service is temporarily unavailable")
        )
        tool = self._tools.get(call.name)
        if tool is None or tool.check_arguments(call.arguments) is not None:
            return None
        return ToolResult(json.dumps({"error": kind, "message": text}), kind)

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self._digest.update(json.dumps(message, sort_keys=True).encode())

    def _observation(self) -> str:
        return json.dumps(self.messages)[:_MAX_TEXT]

    def _info(self) -> dict[str, Any]:
        assert self.task is not None
        return {"task_id": self.task.id, "messages": list(self.messages)}
