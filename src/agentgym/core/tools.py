"""Tools, tool calls, their results, and the runner that executes them."""

from __future__ import annotations

import contextlib
import contextvars
import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from agentgym.core.schemas import SchemaProblem, check_schema, validator
from agentgym.errors import ScenarioError


class FailureKind(StrEnum):
    """Why a step or an episode went wrong. Failures are data, not exceptions."""

    WRONG_TOOL = "wrong_tool"
    """The tool ran, but another one was needed."""
    BAD_ARGUMENTS = "bad_arguments"
    """The right tool with wrong or invalid arguments."""
    UNKNOWN_TOOL = "unknown_tool"
    """No tool has this name."""
    INVALID_CALL = "invalid_call"
    """The answer wasn't a valid message or call."""
    TOOL_ERROR = "tool_error"
    """The tool raised, rejected the call, or returned something that isn't JSON."""
    TIMEOUT = "timeout"
    """The tool exceeded its time limit."""
    NEEDLESS_CALL = "needless_call"
    """The call was unnecessary: its result was already known, or its work done."""
    NO_CALL = "no_call"
    """The agent sent a message although a tool call was needed."""
    AGENT_CRASH = "agent_crash"
    """The agent raised or disappeared."""
    AGENT_TIMEOUT = "agent_timeout"
    """The agent exceeded its time limit."""
    AGENT_FLOOD = "agent_flood"
    """The agent made more requests than an episode can need."""
    NO_DECISION = "no_decision"
    """The agent ended before a decision took effect."""
    UPSTREAM_ERROR = "upstream_error"
    """The server behind the agent's endpoint failed, so the agent failed too."""


class ToolError(Exception):
    """Raise this in a tool to reject a call with a message for the agent."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that an agent asks for."""

    name: str
    arguments: dict[str, Any]
    id: str = "call_0"

    def to_openai(self) -> dict[str, Any]:
        """The call in OpenAI's format, for an assistant message."""
        return openai_call(self.id, self.name, json.dumps(self.arguments))


def openai_call(id_: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A tool call in OpenAI's format; its arguments are JSON."""
    function = {"name": name, "arguments": arguments}
    return {"id": id_, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Attributes:
        content: The text for the agent: JSON, also for errors.
        failure: The kind of failure; None if and only if the tool succeeded.
        latency: The tool's running time in seconds.
    """

    content: str
    failure: FailureKind | None = None
    latency: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the tool succeeded."""
        return self.failure is None


@dataclass(frozen=True, eq=False)
class Tool:
    """A function that an agent can call.

    Attributes:
        name: The tool's name.
        description: What the tool does; policies choose tools by it.
        parameters: JSON schema of the arguments (an object schema).
        function: Runs the tool. It takes the world first if `takes_world` is set, then
            the arguments by name, and returns any JSON value.
        takes_world: Whether the tool acts in the task's world.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    function: Callable[..., Any] | None = None
    takes_world: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.parameters, Mapping) or (
            self.parameters.get("type", "object") != "object"
        ):
            raise ScenarioError(
                f"Tool '{self.name}': parameters must be a JSON schema of type object."
            )

    @classmethod
    def from_openai(cls, schema: Mapping[str, Any]) -> Tool:
        """Reads an OpenAI tool definition (with or without its outer wrapper)."""
        inner = schema.get("function", schema)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ScenarioError("A tool definition must have a function with a name.")
        return cls(
            name=inner["name"],
            description=str(inner.get("description") or ""),
            parameters=inner.get("parameters") or {"type": "object", "properties": {}},
        )

    def to_openai(self) -> dict[str, Any]:
        """The definition in OpenAI's format."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }

    @cached_property
    def properties(self) -> dict[str, dict[str, Any]]:
        """The parameters' schemas, by name."""
        return dict(self.parameters.get("properties") or {})

    @cached_property
    def required(self) -> frozenset[str]:
        """Names of the required parameters."""
        return frozenset(self.parameters.get("required") or ())

    @cached_property
    def _validator(self) -> Any:
        try:
            check_schema(self.parameters)
        except SchemaProblem as problem:
            raise ScenarioError(
                f"Tool '{self.name}': invalid JSON schema: {problem}."
            ) from None
        return validator(self.parameters)

    def check_arguments(self, arguments: Mapping[str, Any]) -> str | None:
        """Returns the problem with the arguments, or None if they are valid."""
        return _problem(next(self._validator.iter_errors(arguments), None))

    def check_argument(self, name: str, value: Any) -> str | None:
        """Returns the problem with one parameter's value, or None if it is valid."""
        schema = self.properties.get(name, self.parameters.get("additionalProperties"))
        if schema is None:
            return None
        return _problem(next(self._validator.descend(value, schema), None))


def _problem(error: Any) -> str | None:
    """A validator's error as a text."""
    if error is None:
        return None
    where = ".".join(str(part) for part in error.absolute_path)
    return f"{where}: {error.message}" if where else str(error.message)


class _Expired(BaseException):
    """Raised inside a tool that timed out; `except Exception` doesn't catch it."""


class ToolRunner:
    """Runs calls with a time limit, so that a hanging tool fails only its own call.

    In the main thread, an interval timer interrupts the tool. In other threads (and on
    systems without such a timer) calls run in a worker thread. Python can't kill a
    thread, so a hanging one stays behind as a daemon. Each of these uses memory, so
    after `max_hung` of them the runner refuses further calls.
    """

    def __init__(self, timeout: float = 10.0, max_hung: int = 8) -> None:
        self.timeout = timeout
        self.max_hung = max_hung
        self.hung = 0
        self._requests: queue.SimpleQueue[Any] | None = None
        self._answers: queue.SimpleQueue[Any] | None = None

    def run(self, tools: Mapping[str, Tool], call: ToolCall, world: Any) -> ToolResult:
        """Validates and runs one call; every failure becomes a result."""
        tool = tools.get(call.name)
        if tool is None:
            known = ", ".join(tools)
            return _failed(
                FailureKind.UNKNOWN_TOOL, f"no tool '{call.name}'; available: {known}"
            )
        wrong = tool.check_arguments(call.arguments)
        if wrong is not None:
            return _failed(FailureKind.BAD_ARGUMENTS, wrong)
        if tool.function is None:
            return _failed(FailureKind.TOOL_ERROR, f"'{call.name}' cannot be run here")
        started = time.perf_counter()
        kind, value = self._call(tool, call.arguments, world)
        latency = time.perf_counter() - started
        if kind is not None:
            return _failed(kind, value, latency)
        try:
            content = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            return _failed(
                FailureKind.TOOL_ERROR, f"returned no JSON: {error}", latency
            )
        return ToolResult(content, None, latency)

    def close(self) -> None:
        """Ends the worker thread."""
        if self._requests is not None:
            self._requests.put(None)
        self._requests = self._answers = None

    def _call(
        self, tool: Tool, arguments: dict[str, Any], world: Any
    ) -> tuple[FailureKind | None, Any]:
        # Switching threads for every call takes longer than most tools.
        if (
            hasattr(signal, "setitimer")
            and threading.current_thread() is threading.main_thread()
        ):
            return self._call_here(tool, arguments, world)
        return self._call_in_thread(tool, arguments, world)

    def _call_here(
        self, tool: Tool, arguments: dict[str, Any], world: Any
    ) -> tuple[FailureKind | None, Any]:
        # Raises only while the tool runs: a late alarm must do nothing.
        running = True

        def expire(number: int, frame: Any) -> None:
            if running:
                raise _Expired

        before = signal.signal(signal.SIGALRM, expire)
        try:
            # Repeats, in case the tool catches the first one.
            signal.setitimer(signal.ITIMER_REAL, self.timeout, 0.1)
            answer = _run(tool, arguments, world)
            running = False
        except _Expired:
            running = False
            answer = FailureKind.TIMEOUT, f"no answer within {self.timeout:g} s"
        finally:
            running = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return answer

    def _call_in_thread(
        self, tool: Tool, arguments: dict[str, Any], world: Any
    ) -> tuple[FailureKind | None, Any]:
        if self.hung >= self.max_hung:
            raise ScenarioError(
                f"Tool '{tool.name}': {self.hung} tool calls have hung for more than "
                f"{self.timeout:g} s each. Add a timeout inside your tools."
            )
        if self._requests is None or self._answers is None:
            self._requests, self._answers = queue.SimpleQueue(), queue.SimpleQueue()
            threading.Thread(
                target=_serve,
                args=(self._requests, self._answers),
                name="agentgym-tools",
                daemon=True,
            ).start()
        self._requests.put((contextvars.copy_context(), tool, arguments, world))
        try:
            kind, value = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            self.hung += 1
            self._requests.put(None)
            self._requests = self._answers = None
            return FailureKind.TIMEOUT, f"no answer within {self.timeout:g} s"
        return kind, value


def _serve(requests: queue.SimpleQueue[Any], answers: queue.SimpleQueue[Any]) -> None:
    while (request := requests.get()) is not None:
        context, *given = request
        answers.put(context.run(_run, *given))
        del request, context, given


def _run(
    tool: Tool, arguments: dict[str, Any], world: Any
) -> tuple[FailureKind | None, Any]:
    assert tool.function is not None
    try:
        if tool.takes_world:
            return None, tool.function(world, **arguments)
        return None, tool.function(**arguments)
    except (_Expired, KeyboardInterrupt):
        raise
    except ToolError as error:
        return FailureKind.TOOL_ERROR, str(error)
    except BaseException as error:
        # Also SystemExit: a tool must not end the whole run.
        return FailureKind.TOOL_ERROR, f"{type(error).__name__}: {error}"


def _failed(kind: FailureKind, message: str, latency: float = 0.0) -> ToolResult:
    content = json.dumps({"error": str(kind), "message": message})
    return ToolResult(content, kind, latency)


def tool_map(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Returns tools by name.

    Raises:
        ScenarioError: Two tools have the same name.
    """
    result: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in result:
            raise ScenarioError(f"Two tools are named '{tool.name}'. Rename one.")
        result[tool.name] = tool
    return result


def parse_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    """Reads the tool calls of an assistant message.

    Raises:
        ValueError: A call has no name, or its arguments aren't a JSON object.
    """
    calls = []
    listed = message.get("tool_calls") or ()
    if not isinstance(listed, list | tuple):
        raise ValueError("tool_calls must be a list")
    for raw in listed:
        function = raw.get("function") if isinstance(raw, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(
            function.get("name"), str
        ):
            raise ValueError("a tool call needs a function with a name")
        arguments = function.get("arguments") or "{}"
        if isinstance(arguments, str):
            with contextlib.suppress(json.JSONDecodeError, RecursionError):
                arguments = json.loads(arguments)
        if not isinstance(arguments, dict):
            raise ValueError(f"arguments of '{function['name']}' are no JSON object")
        calls.append(
            ToolCall(function["name"], arguments, str(raw.get("id") or "call_0"))
        )
    return calls
