"""A gymnasium environment in which an agent talks and tools really run."""

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
    """What a scenario says of one decision.

    Attributes:
        correct: Whether the decision was right. A right call that a fault kept from
            running stays right: trying again is then the right move.
        failure: Why not, if it was wrong.
        harmful: The world is spoiled and cannot be mended; the episode ends.
        wrong_arguments: Names of the call's parameters that had wrong values, or were
            left out wrongly; None if the scenario does not tell. Whoever tells lets an
            agent learn each parameter by itself.
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
    """Sentences with which the user is asked for something: not "Anything else?"."""
    sentences = re.split(r"(?<=[.!?])\s+", content)
    asking = (s for s in sentences if s.rstrip(" \n\"'*_)").endswith("?"))
    return [s for s in asking if not _COURTESY.search(s)]


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """What one assistant message led to."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    verdict: Verdict
    done: bool


class Environment(gymnasium.Env[str, str]):
    """One conversation at a time, in a world of its own.

    Observations are the conversation as a JSON list of chat messages, actions are one
    assistant message as JSON: the same that any chat-completion client exchanges.
    Trainers skip the JSON and use `reset_task`, `messages` and `act`.

    An episode ends when the agent closes the conversation, after `max_steps`
    decisions, at the `patience`-th wrong one (customers do not wait forever), or at a
    harmful one.

    Subclasses say what the world is and what is right: `tools`, `make_world`,
    `judge_call`, `judge_message`, `reply`, `outcome`.
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
        """Makes an environment that draws from the given tasks.

        Args:
            tasks: What `reset` chooses from.
            max_steps: Decisions until an episode is cut off.
            patience: Wrong decisions that end an episode.
            tool_failure_rate: Share of calls that are made to fail, half of them as
                time-outs, before the tool is reached.
            runner: Runs the tools; shared between environments.
            render_mode: "ansi" for the conversation as text.
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
        """All tools of the environment; asked once."""

    @abstractmethod
    def make_world(self, task: Task) -> Any:
        """A fresh world for the task. Must depend on the task alone."""

    def close_world(self, world: Any) -> None:
        """Frees what `make_world` took."""

    @abstractmethod
    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        """Judges a call after it ran. Called once for each call, in order."""

    @abstractmethod
    def judge_message(self, content: str) -> Verdict:
        """Judges a message to the user, before the user replies."""

    def reply(self, content: str) -> str | None:
        """What the user answers to a message; None closes the conversation."""
        return None

    @abstractmethod
    def outcome(self) -> tuple[bool, float]:
        """At the end: whether the task was solved, and how far it got (0 to 1)."""

    # What agents and trainers use ----------------------------------------------

    @property
    def state_space(self) -> gymnasium.Space[str]:
        """Another name for `observation_space`."""
        return self.observation_space

    @property
    def tool_list(self) -> Sequence[Tool]:
        """The tools that may be called."""
        return self._tool_list

    @property
    def closed(self) -> bool:
        """Whether the agent spoke last, and did not ask for anything."""
        last = self.messages[-1]
        return last["role"] == "assistant" and not questions(last["content"] or "")

    @property
    def state_key(self) -> str:
        """Names the conversation so far within its task."""
        return self._digest.hexdigest()

    def offer(self, tools: Sequence[Tool]) -> None:
        """Offers these tools from now on, where they differ from task to task."""
        self._tools = tool_map(tools)
        self._tool_list = list(self._tools.values())

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """Starts an episode of the task; the seed decides injected faults."""
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
        """Takes one assistant message: runs its calls or lets the user answer."""
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
            # The role comes last: nobody speaks in the user's name here.
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
        return ActOutcome(tuple(calls), tuple(results), verdict, self.done)

    # The gymnasium interface ---------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts an episode: of `options["task"]`, or of one drawn by the seed."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if task is None:
            if not self.tasks:
                raise ScenarioError("The environment has no tasks to draw from.")
            task = self.tasks[int(self.np_random.integers(len(self.tasks)))]
        self.reset_task(task, int(self.np_random.integers(2**31)))
        return self._observation(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one assistant message as JSON; text that is no JSON is a failure.

        The reward is the judgement of this decision: +1 right, -1 wrong, and the
        outcome added at the end. Trainers use `Scenario.broadcast_rewards` instead.
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
        """The conversation as text, in render mode "ansi"."""
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
        """Frees the world of an episode that is over and judged."""
        if self.world is not None:
            self.close_world(self.world)
            self.world = None

    def close(self) -> None:
        """Frees the world and the worker thread."""
        self.release()
        self.runner.close()

    # ---------------------------------------------------------------------------

    def _run_calls(self, calls: list[ToolCall], results: list[ToolResult]) -> Verdict:
        verdicts = []
        for call in calls:
            result = self._fault() or self.runner.run(self._tools, call, self.world)
            results.append(result)
            verdicts.append(self._judged(call, result))
            self._append(
                {"role": "tool", "tool_call_id": call.id, "content": result.content}
            )
        if len(verdicts) == 1:
            return verdicts[0]
        # Wrong arguments are left out: nobody could tell of which call they are.
        worst = next((v for v in verdicts if not v.correct), RIGHT)
        return Verdict(worst.correct, worst.failure, any(v.harmful for v in verdicts))

    def _judged(self, call: ToolCall, result: ToolResult) -> Verdict:
        """The judge's verdict; a name that is no parameter would praise a wrong one."""
        verdict = self.judge_call(call, result)
        if verdict.wrong_arguments:
            tool = self._tools.get(call.name)
            known = {*(tool.properties if tool else ()), *call.arguments}
            strange = sorted(verdict.wrong_arguments - known)
            if strange:
                raise ScenarioError(
                    f"judge_call says that '{call.name}' has a wrong argument "
                    f"'{strange[0]}', but it has no such parameter."
                )
        return verdict

    def _speak(self, content: str) -> tuple[Verdict, bool]:
        verdict = self.judge_message(content)
        answer = self.reply(content)
        if answer is None:
            return verdict, True
        self._append({"role": "user", "content": answer})
        return verdict, False

    def _fault(self) -> ToolResult | None:
        if self._faults is None or self._faults.random() >= self.tool_failure_rate:
            return None
        kind, text = (
            (FailureKind.TIMEOUT, "the service did not answer in time")
            if self._faults.random() < 0.5
            else (FailureKind.TOOL_ERROR, "the service is temporarily unavailable")
        )
        return ToolResult(json.dumps({"error": kind, "message": text}), kind)

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self._digest.update(json.dumps(message, sort_keys=True).encode())

    def _observation(self) -> str:
        return json.dumps(self.messages)[:_MAX_TEXT]

    def _info(self) -> dict[str, Any]:
        assert self.task is not None
        return {"task_id": self.task.id, "messages": list(self.messages)}
