"""Tries a scenario: calls its tools, plays a few episodes.

Arguments are generated from the tools' schemas and from the conversation's words.
Tools really run, each in a fresh world.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentgym.core.task import SPLITS, Message, Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolError, ToolRunner
from agentgym.core.trajectory import Step, Trajectory
from agentgym.errors import one_line
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import ActOutcome, Environment

TASKS = 48
"""Tasks drawn from each split."""
CLOSING: Message = {"role": "assistant", "content": "Done."}

_MAX_STEPS = 10
_CALLS = 3
_SEARCHED_TASKS = 3
_SEARCH_BUDGET = 600
_VARIANTS = 8
_SAMPLES = {
    "email": "someone@example.com",
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uuid": "5f2c1f5e-7c43-4d0c-9c43-2f2b8d6a1c11",
}


def calling(name: str, arguments: Mapping[str, Any]) -> Message:
    """An assistant's message that calls a tool."""
    call = ToolCall(name, dict(arguments)).to_openai()
    return {"role": "assistant", "content": None, "tool_calls": [call]}


UNKNOWN_CALL = calling("no_such_tool", {})


class NotChecked(Exception):
    """A rule can't be checked because the scenario breaks another one."""


@contextlib.contextmanager
def needs(rule: str) -> Iterator[None]:
    """Errors in the block break another rule, which must be fixed first."""
    try:
        yield
    except NotChecked:
        raise
    except Exception:
        raise NotChecked(rule) from None


@dataclass(frozen=True, slots=True)
class ToolProbe:
    """The result of one generated call.

    Attributes:
        arguments: The arguments, or None if none could be generated.
        raised: What the tool raised, other than `ToolError`.
        not_json: Why its result isn't JSON.
    """

    tool: Tool
    arguments: dict[str, Any] | None
    raised: str = ""
    not_json: str = ""
    hung: bool = False

    @property
    def healthy(self) -> bool:
        """Whether the tool can be used in further checks."""
        return self.arguments is not None and not (
            self.raised or self.not_json or self.hung
        )


class Bench:
    """A scenario in a check; everything is drawn and tried once."""

    def __init__(self, scenario: Scenario, tool_timeout: float) -> None:
        self.scenario = scenario
        self.tool_timeout = tool_timeout
        self.runner = ToolRunner(tool_timeout, max_hung=10**6)
        self.notes: list[str] = []
        self._open: list[Environment] = []

    def draw(self, split: Split, seed: int) -> list[Task]:
        """Asks the scenario for tasks, each time again."""
        return list(self.scenario.tasks(split, seed, TASKS))

    @cached_property
    def tasks(self) -> dict[Split, list[Task]]:
        """Tasks of each split."""
        with needs("tasks_exist"):
            tasks = {split: self.draw(split, 0) for split in SPLITS}
        if not all(
            some and all(isinstance(task, Task) and task.messages for task in some)
            for some in tasks.values()
        ):
            raise NotChecked("tasks_exist")
        return tasks

    @property
    def task(self) -> Task:
        """A task of the train split."""
        return self.tasks["train"][0]

    def make_environment(self, max_steps: int = _MAX_STEPS) -> Environment:
        """A new environment; raises what goes wrong."""
        environment = self.scenario.create_environment(
            self.tasks["train"], max_steps=max_steps, runner=self.runner
        )
        self._open.append(environment)
        return environment

    def made(self) -> Environment:
        """A new environment, for rules about something else."""
        with needs("environment_is_made"):
            environment = self.make_environment()
        if not isinstance(environment, Environment):
            raise NotChecked("environment_is_made")
        return environment

    def environment(self) -> Environment:
        """A new environment that has been played once."""
        environment = self.made()
        with needs("environment_steps"):
            play(environment, self.task, [UNKNOWN_CALL, CLOSING])
        with needs("world_closes"):
            environment.release()
        return environment

    @cached_property
    def probes(self) -> list[ToolProbe]:
        """Every tool that has a function, called in a few tasks."""
        environment = self.environment()
        alive = [tool for tool in environment.tool_list if tool.function is not None]
        return [self._probe(environment, tool) for tool in alive]

    @cached_property
    def episodes(self) -> list[Trajectory]:
        """Episodes of a few tasks: at least two bad ones each, and any good one."""
        environment, tasks = self.environment(), self.tasks["train"][:_SEARCHED_TASKS]
        return [found for task in tasks for found in self._search(environment, task)]

    def close(self) -> None:
        """Closes what was opened; a rule reports what cannot be closed."""
        for environment in self._open:
            with contextlib.suppress(Exception):
                environment.close()
        self.runner.close()

    def _probe(self, environment: Environment, tool: Tool) -> ToolProbe:
        probe = ToolProbe(tool, None)
        calls = 0
        for task in self.tasks["train"]:
            arguments = next(made_up_arguments(tool, task.messages), None)
            if arguments is None:
                continue
            probe = self._call(environment, tool, arguments, task)
            calls += 1
            if calls == _CALLS or not probe.healthy:
                break
        return probe

    def _call(
        self,
        environment: Environment,
        tool: Tool,
        arguments: dict[str, Any],
        task: Task,
    ) -> ToolProbe:
        function = tool.function
        assert function is not None
        raised: list[str] = []
        not_json: list[str] = []

        def watched(*args: Any, **kwargs: Any) -> None:
            try:
                value = function(*args, **kwargs)
            except ToolError:
                return
            except (Exception, SystemExit) as error:
                raised.append(one_line(error))
                return
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                not_json.append(str(error))

        world = environment.make_world(task)
        watching = {tool.name: dataclasses.replace(tool, function=watched)}
        result = self.runner.run(watching, ToolCall(tool.name, arguments), world)
        hung = result.failure is FailureKind.TIMEOUT
        if not hung:
            environment.close_world(world)
        return ToolProbe(tool, arguments, "".join(raised), "".join(not_json), hung)

    def _search(self, environment: Environment, task: Task) -> Iterator[Trajectory]:
        """Looks for the right course by trying calls and asking the judge."""
        yield play(environment, task, [UNKNOWN_CALL] * _MAX_STEPS)
        tools = [probe.tool for probe in self.probes if probe.healthy]
        course: list[Message] = []
        tries = 0
        while len(course) < _MAX_STEPS:
            trajectory = play(environment, task, [*course, CLOSING])
            if trajectory.success is not None:
                yield trajectory
            if trajectory.success or len(trajectory.steps) <= len(course):
                return
            play(environment, task, course)
            talk = list(environment.messages)
            for message in _calls(tools, talk):
                tries += 1
                if tries > _SEARCH_BUDGET:
                    return
                if message in course:
                    continue
                step = play(environment, task, [*course, message]).steps[-1]
                if step.correct and all(result.ok for result in step.results):
                    course.append(message)
                    break
            else:
                return


def play(
    environment: Environment, task: Task, messages: Iterable[Message]
) -> Trajectory:
    """Plays the messages until the episode is over, and judges it if it is."""
    environment.reset_task(task)
    trajectory = Trajectory(task)
    for message in messages:
        key = environment.state_key
        outcome: ActOutcome = environment.act(message)
        trajectory.steps.append(
            Step(
                dict(message),
                calls=outcome.calls,
                results=outcome.results,
                correct=outcome.verdict.correct,
                failure=outcome.verdict.failure,
                state_key=key,
            )
        )
        if environment.done:
            trajectory.success, trajectory.outcome = environment.outcome()
            break
    return trajectory


def observations(environment: Environment, script: Sequence[Message]) -> list[Any]:
    """What an episode with these messages shows, from its reset on."""
    seen: list[Any] = [environment.reset(seed=7)[0]]
    for message in script:
        observation, reward, terminated, truncated, _ = environment.step(
            json.dumps(message)
        )
        seen.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            break
    return seen


def made_up_arguments(
    tool: Tool, messages: Sequence[Message]
) -> Iterator[dict[str, Any]]:
    """Valid arguments for a tool, from its schema and the conversation."""
    words = " \n ".join(str(message.get("content") or "") for message in messages)
    try:
        names = sorted(tool.required)
        choices = [_values(tool.properties.get(name, {}), words) for name in names]
        for values in itertools.islice(itertools.product(*choices), _VARIANTS):
            arguments = dict(zip(names, values, strict=True))
            if tool.check_arguments(arguments) is None:
                yield arguments
    except Exception:
        # Another rule reports invalid schemas.
        return


def _calls(tools: Sequence[Tool], messages: Sequence[Message]) -> Iterator[Message]:
    for tool in tools:
        for arguments in made_up_arguments(tool, messages):
            yield calling(tool.name, arguments)


def _values(schema: Mapping[str, Any], words: str) -> list[Any]:
    """Values that fit a schema, likelier ones first."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    branches = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    if branches:
        return [value for branch in branches for value in _values(branch, words)]
    kind = schema.get("type", "string")
    kind = next((k for k in kind if k != "null"), "null") if _is_list(kind) else kind
    make = _MAKERS.get(kind)
    given = [schema["default"]] if "default" in schema else []
    given += make(schema, words) if make else [None]
    return list({repr(value): value for value in given}.values())[:_VARIANTS]


def _texts(schema: Mapping[str, Any], words: str) -> list[Any]:
    found: list[str] = []
    pattern = schema.get("pattern")
    if pattern is not None:
        with contextlib.suppress(re.error):
            loose = re.compile(pattern.removeprefix("^").removesuffix("$"))
            found = [match.group() for match in loose.finditer(words) if match.group()]
    elif schema.get("format") in _SAMPLES:
        if schema["format"] == "email":
            found = re.findall(r"[\w.+-]+@[\w-]+\.[\w.-]*\w", words)
        found.append(_SAMPLES[schema["format"]])
    else:
        found = [*re.findall(r"\b\w*\d[\w-]*\b", words), words.split("\n")[-1].strip()]
    size = int(schema.get("minLength", 1))
    return [*found, *re.findall(r"\w+", words)[-4:], "x" * max(1, size)]


def _numbers(schema: Mapping[str, Any], words: str) -> list[Any]:
    found = [float(text) for text in re.findall(r"\d+(?:\.\d+)?", words)]
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 2))
    return [*found, low, low + 1, (low + high) / 2, high]


def _integers(schema: Mapping[str, Any], words: str) -> list[Any]:
    return [math.floor(n) for n in _numbers(schema, words) if math.isfinite(n)]


def _lists(schema: Mapping[str, Any], words: str) -> list[Any]:
    items = _values(schema.get("items") or {}, words)
    size = int(schema.get("minItems", 0))
    return [items[:1] * max(1, size), items[:size], []]


def _mappings(schema: Mapping[str, Any], words: str) -> list[Any]:
    properties = schema.get("properties") or {}
    names = schema.get("required") or ()
    return [{name: _values(properties.get(name, {}), words)[0] for name in names}]


_MAKERS: dict[str, Callable[[Mapping[str, Any], str], list[Any]]] = {
    "string": _texts,
    "number": _numbers,
    "integer": _integers,
    "boolean": lambda schema, words: [True, False],
    "array": _lists,
    "object": _mappings,
}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
