"""LangChain: trained agents as its chat model; its agents in training."""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import (
    ChatPromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
)
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentgym.core.errors import MissingExtraError, UsageError
from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.core.trained_agent import TrainedAgent
from agentgym.integrations import react
from agentgym.integrations.base import (
    FrameworkAdapter,
    Tools,
    checked_tools,
    live_tools,
    run_tool,
)
from agentgym.integrations.chat import Mind, Savings, Turn, jsonable, retold
from agentgym.integrations.seats import RoutedTool, Seat
from agentgym.serving.deciding import Answer

AgentType = Literal[
    "tool_calling", "zero_shot_react", "conversational_react", "structured_chat"
]

_REACT = """{system}

You have access to the following tools:

{{tools}}

Use the following format:

Question: the input question you must answer
Thought: you should always think about what to do
Action: the action to take, should be one of [{{tool_names}}]
Action Input: the input to the action
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can repeat N times)
Thought: I now know the final answer
Final Answer: the final answer to the original input question

Begin!

"""
_ZERO_SHOT = _REACT + "Question: {{input}}\nThought:{{agent_scratchpad}}"
_CONVERSATION = (
    _REACT + "Previous conversation history:\n{{chat_history}}\n\n"
    "New input: {{input}}\n{{agent_scratchpad}}"
)
_STRUCTURED = """{system}

You have access to the following tools:

{{tools}}

Answer with a $JSON_BLOB that has an "action" (one of {{tool_names}}, or "Final Answer")
and an "action_input":

```
{{{{"action": $TOOL_NAME, "action_input": $INPUT}}}}
```

Begin! Format is Action:```$JSON_BLOB```then Observation"""
_STRUCTURED_INPUT = (
    "{input}\n\n{agent_scratchpad}\n (reminder to respond in a JSON blob)"
)


class LangChainAdapter(FrameworkAdapter):
    """Agents of LangChain: graphs of `create_agent`, and executors."""

    def wrap_agent(
        self,
        trained: TrainedAgent,
        *,
        tools: Tools | None = None,
        llm: BaseChatModel | None = None,
        defer_below: float = 0.0,
        style: Literal["graph", "executor"] = "graph",
        agent_type: AgentType = "tool_calling",
        system_prompt: str | None = None,
        **options: Any,
    ) -> Any:
        """A graph as `create_agent` makes it, or an `AgentExecutor`.

        Args:
            trained: Decides.
            tools: What it may call: our tools, LangChain's, plain functions, or
                functions by the names of the tools it was trained on.
            llm: A chat model that writes the words, and decides in doubt. Without one
                the trained agent speaks in its own few words.
            defer_below: The `llm` decides where the confidence is lower than this.
            style: "graph", or "executor" for `langchain_classic`.
            agent_type: Of an executor: how it calls tools.
            system_prompt: By default the scenario's.
            **options: For `create_agent`, or for `AgentExecutor`.
        """
        native = [_native_tool(tool) for tool in live_tools(trained, tools)]
        prompt = system_prompt or str(trained.metadata.get("system_prompt") or "")
        model = AgentGymChat(mind=Mind.of(trained, llm, defer_below), llm=llm)
        if style == "graph":
            if agent_type != "tool_calling":
                raise UsageError(
                    'Nothing reads agent_type in a graph. Add style="executor".'
                )
            return create_agent(model, native, system_prompt=prompt or None, **options)
        return _executor(model, native, prompt, agent_type, options)

    def extract_tools(self, agent: Any) -> list[Tool]:
        """See `FrameworkAdapter`."""
        routed = [_routed(tool).tool for tool in _tools_of(agent)]
        return checked_tools(routed, "The agent of LangChain")

    def seat(self, agent: Any) -> Seat:
        """See `FrameworkAdapter`."""
        _route_models()
        tools = _tools_of(agent)
        for tool in tools:
            _route_tool(tool)
        made = _ExecutorSeat if hasattr(agent, "input_keys") else _GraphSeat
        return made(agent, [_definition(tool) for tool in tools])

    def stateless(self, agent: Any) -> bool:
        """Graphs keep their state by thread; executors only in a memory."""
        return getattr(agent, "memory", None) is None


# The chat model ----------------------------------------------------------------------


class AgentGymChat(BaseChatModel):
    """A trained agent as a chat model.

    Attributes:
        mind: Decides, and counts.
        llm: Writes words, and decides in doubt; None if there is none.
        text_tools: Definitions of the tools, for agents that call them in text.
    """

    mind: Any
    llm: Any = None
    text_tools: list[dict[str, Any]] = []

    @property
    def _llm_type(self) -> str:
        return "agentgym"

    @property
    def savings(self) -> Savings:
        """What the language model was spared."""
        savings: Savings = self.mind.savings
        return savings

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **options: Any
    ) -> Runnable[Any, Any]:
        """The model with these tools to call."""
        definitions = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=definitions, tool_choice=tool_choice, **options)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> ChatResult:
        asked = _Asked(messages, stop, options, self.text_tools)
        turn, answer = asked.decide(self.mind)
        if turn is Turn.ACT:
            return _result(asked.message(answer))
        model, given = self._ask_llm(turn, asked, options)
        said = model.invoke(given, stop=stop if turn is Turn.DEFER else None)
        return _result(self._said(turn, asked, said))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> ChatResult:
        asked = _Asked(messages, stop, options, self.text_tools)
        turn, answer = await asyncio.to_thread(asked.decide, self.mind)
        if turn is Turn.ACT:
            return _result(asked.message(answer))
        model, given = self._ask_llm(turn, asked, options)
        said = await model.ainvoke(given, stop=stop if turn is Turn.DEFER else None)
        return _result(self._said(turn, asked, said))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> Iterator[ChatGenerationChunk]:
        whole = self._generate(messages, stop, run_manager, **options)
        for chunk in _chunks(whole.generations[0].message):
            if run_manager is not None and chunk.text:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        whole = await self._agenerate(messages, stop, run_manager, **options)
        for chunk in _chunks(whole.generations[0].message):
            if run_manager is not None and chunk.text:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _ask_llm(
        self, turn: Turn, asked: _Asked, options: dict[str, Any]
    ) -> tuple[Runnable[Any, Any], list[BaseMessage]]:
        if turn is Turn.WORDS:
            return self.llm, convert_to_messages(retold(asked.messages))
        tools = options.get("tools")
        model = self.llm.bind_tools(tools) if tools else self.llm
        return model, asked.given

    def _said(self, turn: Turn, asked: _Asked, said: AIMessage) -> AIMessage:
        self.savings.note_llm((said.usage_metadata or {}).get("total_tokens", 0))
        if turn is Turn.WORDS and asked.in_text:
            words = react.write(said.text, (), (), structured=asked.structured)
            return said.model_copy(update={"content": words})
        return said


class AgentGymMiddleware(AgentMiddleware):
    """Lets a trained agent decide in a `create_agent` that the user keeps.

        create_agent("openai:...", tools, middleware=[AgentGymMiddleware(trained)])

    The agent's own model is asked for words only, and where the trained agent is less
    sure than `defer_below`.

    Attributes:
        savings: What the agent's own model was spared.
    """

    def __init__(self, trained: TrainedAgent, *, defer_below: float = 0.0) -> None:
        super().__init__()
        self._mind = Mind.of(trained, True, defer_below)
        self.savings = self._mind.savings

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Decides in the model's place, or hands on."""
        asked = _asked_of(request)
        turn, answer = asked.decide(self._mind)
        if turn is Turn.ACT:
            return asked.message(answer)
        response = handler(_handed_on(turn, asked, request))
        self._count(response)
        return response

    async def awrap_model_call(
        self, request: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """The same, awaited."""
        asked = _asked_of(request)
        turn, answer = await asyncio.to_thread(asked.decide, self._mind)
        if turn is Turn.ACT:
            return asked.message(answer)
        response = await handler(_handed_on(turn, asked, request))
        self._count(response)
        return response

    def _count(self, response: Any) -> None:
        for message in getattr(response, "result", None) or [response]:
            usage = getattr(message, "usage_metadata", None) or {}
            self.savings.note_llm(usage.get("total_tokens", 0))


def _asked_of(request: Any) -> _Asked:
    head = [request.system_message] if request.system_message is not None else []
    options = {"tools": request.tools, "tool_choice": request.tool_choice}
    return _Asked([*head, *request.messages], None, options, [])


def _handed_on(turn: Turn, asked: _Asked, request: Any) -> Any:
    if turn is Turn.DEFER:
        return request
    told = [m for m in retold(asked.messages) if m["role"] != "system"]
    return request.override(messages=convert_to_messages(told), tools=[])


class _Asked:
    """What a chat model was asked, as a policy reads it.

    Attributes:
        given: The messages of LangChain.
        messages: The same, as OpenAI has them.
        in_text: Whether the agent calls tools in plain text.
        structured: Whether as JSON in a code block.
    """

    def __init__(
        self,
        given: Sequence[BaseMessage],
        stop: list[str] | None,
        options: dict[str, Any],
        text_tools: list[dict[str, Any]],
    ) -> None:
        self.given = list(given)
        raw: list[Message] = convert_to_openai_messages(  # type: ignore[assignment]
            self.given, text_format="string"
        )
        named = options.get("tools") or ()
        self._tools = [convert_to_openai_tool(tool) for tool in named]
        self.in_text = not self._tools and react.is_text_style(raw, stop)
        self.structured = self.in_text and react.is_structured(raw)
        self._stop = None if self.in_text else stop
        self._choice = _tool_choice(options.get("tool_choice"))
        form = options.get("response_format")
        self._form = form if isinstance(form, dict) and "json_schema" in form else None
        self.messages = raw
        if self.in_text:
            self._tools = text_tools
            self.messages = react.read(raw, text_tools)

    def decide(self, mind: Mind) -> tuple[Turn, Answer]:
        """Asks a mind."""
        return mind.decide(
            self.messages,
            self._tools,
            tool_choice=self._choice,
            stop=self._stop,
            response_format=self._form,
        )

    def message(self, answer: Answer) -> AIMessage:
        """The answer as LangChain has it."""
        done = answer.completion
        usage = done.usage
        content = done.content or ""
        calls = done.calls
        if self.in_text:
            content = react.write(
                done.content, done.calls, self._tools, structured=self.structured
            )
            calls = ()
        return AIMessage(
            content=content,
            tool_calls=[
                {"name": c.name, "args": c.arguments, "id": c.id, "type": "tool_call"}
                for c in calls
            ],
            usage_metadata={
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "total_tokens": usage["total_tokens"],
            },
            response_metadata={
                "finish_reason": done.finish_reason,
                "confidence": answer.decision.confidence,
            },
        )


def _tool_choice(choice: Any) -> Any:
    """OpenAI's form of what LangChain and its providers call it."""
    if choice in (None, "auto", "none", "required"):
        return choice
    if choice in ("any", True):
        return "required"
    if isinstance(choice, str):
        return {"type": "function", "function": {"name": choice}}
    if isinstance(choice, dict) and choice.get("type") in ("any", "auto", "none"):
        return "required" if choice["type"] == "any" else choice["type"]
    if isinstance(choice, dict) and choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _result(message: BaseMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(message: Any) -> Iterator[ChatGenerationChunk]:
    words = message.text.split(" ") if message.text else []
    for i, word in enumerate(words):
        text = word if i == 0 else f" {word}"
        yield ChatGenerationChunk(message=AIMessageChunk(content=text))
    chunks = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=i
        )
        for i, call in enumerate(message.tool_calls)
    ]
    last = AIMessageChunk(
        content="",
        tool_call_chunks=chunks,
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        chunk_position="last",
    )
    yield ChatGenerationChunk(message=last)


# Agents that are handed out ----------------------------------------------------------


def _native_tool(tool: Any) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if not isinstance(tool, Tool):
        return StructuredTool.from_function(tool)

    def run(**arguments: Any) -> str:
        return run_tool(tool, arguments)

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.parameters),
        func=run,
    )


def _executor(
    model: AgentGymChat,
    tools: list[BaseTool],
    system: str,
    agent_type: AgentType,
    options: dict[str, Any],
) -> Any:
    try:
        from langchain_classic import agents
    except ModuleNotFoundError:
        raise MissingExtraError(
            "An executor",
            "langchain",
            "langchain-classic is not installed (supported: 1.0 up to, not including,"
            " 2)",
        ) from None
    system = system.replace("{", "{{").replace("}", "}}")
    if agent_type == "tool_calling":
        prompt = ChatPromptTemplate.from_messages(
            [
                ("system", system or "You are a helpful assistant."),
                MessagesPlaceholder("chat_history", optional=True),
                ("human", "{input}"),
                MessagesPlaceholder("agent_scratchpad"),
            ]
        )
        agent = agents.create_tool_calling_agent(model, tools, prompt)
        return agents.AgentExecutor(agent=agent, tools=tools, **options)
    options = {"handle_parsing_errors": True, **options}
    model = model.model_copy(update={"text_tools": [_definition(t) for t in tools]})
    if agent_type == "structured_chat":
        prompt = ChatPromptTemplate.from_messages(
            [
                ("system", _STRUCTURED.format(system=system)),
                MessagesPlaceholder("chat_history", optional=True),
                ("human", _STRUCTURED_INPUT),
            ]
        )
        agent = agents.create_structured_chat_agent(model, tools, prompt)
        return agents.AgentExecutor(agent=agent, tools=tools, **options)
    templates = {"zero_shot_react": _ZERO_SHOT, "conversational_react": _CONVERSATION}
    if agent_type not in templates:
        known = ", ".join(["tool_calling", "structured_chat", *templates])
        raise UsageError(f"There is no agent_type '{agent_type}'. Available: {known}.")
    in_text = [_text_tool(tool) for tool in tools]
    template = PromptTemplate.from_template(templates[agent_type].format(system=system))
    agent = agents.create_react_agent(model, in_text, template)
    return agents.AgentExecutor(agent=agent, tools=in_text, **options)


def _text_tool(tool: BaseTool) -> BaseTool:
    """The tool with one text as its input: all that agents of this style can give."""
    only = react.only_parameter(_definition(tool)["function"]["parameters"])

    def run(text: str) -> Any:
        return tool.invoke(react.parse_input(text, only))

    return TextTool(name=tool.name, description=tool.description, func=run)


def _definition(tool: BaseTool) -> dict[str, Any]:
    definition: dict[str, Any] = convert_to_openai_tool(tool)
    return definition


# Agents in training ------------------------------------------------------------------

_SEAT: ContextVar[_LangChainSeat | None] = ContextVar("agentgym_seat", default=None)
"""Whose agent is running; LangChain hands it on to the threads that it starts."""
_ROUTED: dict[int, tuple[BaseTool, RoutedTool]] = {}
"""By the identity of the tool, which is kept with it so that no other gets it."""


class _LangChainSeat(Seat):
    def __init__(self, agent: Any, definitions: list[dict[str, Any]]) -> None:
        super().__init__()
        self._agent = agent
        self.definitions = definitions

    def _invoke(self, given: dict[str, Any], config: dict[str, Any]) -> Any:
        token = _SEAT.set(self)
        try:
            return self._agent.invoke(given, config)
        finally:
            _SEAT.reset(token)


class _GraphSeat(_LangChainSeat):
    def begin(self, messages: Sequence[Message]) -> str:
        self._config = {"configurable": {"thread_id": uuid.uuid4().hex}}
        self._said: list[Any] = []
        return self._tell(convert_to_messages(list(messages)))

    def go_on(self, content: str) -> str:
        return self._tell(convert_to_messages([{"role": "user", "content": content}]))

    def _tell(self, new: list[Any]) -> str:
        kept = getattr(self._agent, "checkpointer", None)
        given = new if kept else [*self._said, *new]
        state = self._invoke({"messages": given}, self._config)
        self._said = list(state["messages"])
        return str(self._said[-1].text)


class _ExecutorSeat(_LangChainSeat):
    def begin(self, messages: Sequence[Message]) -> str:
        if self._agent.memory is not None:
            self._agent.memory.clear()
        *before, last = messages
        self._said: list[Message] = list(before)
        return self.go_on(str(last.get("content") or ""))

    def go_on(self, content: str) -> str:
        variables = _variables(self._agent)
        given: dict[str, Any] = {"input": content}
        if self._agent.memory is None and self._said:
            if variables.get("chat_history") is str:
                given["chat_history"] = "\n".join(
                    f"{'Human' if m['role'] == 'user' else 'AI'}: {m['content']}"
                    for m in self._said
                )
            elif "chat_history" in variables:
                given["chat_history"] = convert_to_messages(self._said)
            else:
                # No room for a history: all that the user said is the question.
                told = [str(m["content"]) for m in self._said if m["role"] == "user"]
                given["input"] = "\n".join([*told, content])
        elif variables.get("chat_history") is str and self._agent.memory is None:
            given["chat_history"] = ""
        answer = str(self._invoke(given, {})["output"])
        self._said += [
            {"role": "user", "content": content},
            {"role": "assistant", "content": answer},
        ]
        return answer


def _variables(executor: Any) -> dict[str, type]:
    """What an executor's prompt has room for, and whether it is text or messages."""
    found: dict[str, type] = {}
    for step in getattr(getattr(executor.agent, "runnable", None), "steps", ()):
        names = getattr(step, "input_variables", None)
        if names is not None:
            lists = getattr(step, "input_types", {})
            optional = getattr(step, "optional_variables", [])
            found |= {name: list if name in lists else str for name in names}
            found |= dict.fromkeys(optional, list)
    return found


def _tools_of(agent: Any) -> list[BaseTool]:
    if hasattr(agent, "input_keys") and hasattr(agent, "tools"):
        return list(agent.tools)
    found: list[BaseTool] = []
    for node in getattr(agent, "nodes", {}).values():
        by_name = getattr(getattr(node, "bound", None), "tools_by_name", None)
        found += (by_name or {}).values()
    return found


def _routed(tool: BaseTool) -> RoutedTool:
    known = _ROUTED.get(id(tool))
    if known is None:
        run, arun = tool._run, tool._arun
        only_async = getattr(tool, "func", run) is None

        def ours(**arguments: Any) -> Any:
            parsed = tool._parse_input(arguments, None)
            given = parsed if isinstance(parsed, dict) else arguments
            if only_async:
                return asyncio.run(arun(**given, config={}))
            return tool.func(**given) if hasattr(tool, "func") else run(**given)

        definition = Tool.from_openai(_definition(tool))
        made = RoutedTool(
            Tool(definition.name, definition.description, definition.parameters, ours)
        )
        known = _ROUTED[id(tool)] = (tool, made)
    return known[1]


def _route_tool(tool: BaseTool) -> None:
    """Leads the calls of a tool through the episode, while a seat is playing."""
    if "_run" in vars(tool):
        return
    routed = _routed(tool)
    names = list(routed.tool.properties)
    run, arun = tool._run, tool._arun

    def arguments_of(given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(zip(names, given, strict=False))
        arguments |= {name: named[name] for name in names if name in named}
        return {name: jsonable(value) for name, value in arguments.items()}

    def call(seat: Seat, given: Any, named: Any, native: Callable[[], Any]) -> Any:
        value = routed.call(seat._task, arguments_of(given, named), native)
        if tool.response_format == "content_and_artifact" and isinstance(value, str):
            return value, None
        return value

    @functools.wraps(run)
    def routed_run(*given: Any, **named: Any) -> Any:
        seat = _SEAT.get()
        if seat is None:
            return run(*given, **named)
        if getattr(tool, "func", run) is None:
            native = functools.partial(_run_async, arun, given, named)
        else:
            native = functools.partial(run, *given, **named)
        return call(seat, given, named, native)

    @functools.wraps(arun)
    async def routed_arun(*given: Any, **named: Any) -> Any:
        seat = _SEAT.get()
        if seat is None:
            return await arun(*given, **named)
        native = functools.partial(_run_async, arun, given, named)
        return await asyncio.to_thread(call, seat, given, named, native)

    # Past pydantic, which would take them for fields.
    object.__setattr__(tool, "_run", routed_run)
    object.__setattr__(tool, "_arun", routed_arun)


def _run_async(arun: Callable[..., Any], given: Any, named: Any) -> Any:
    return asyncio.run(arun(*given, **named))


@functools.cache
def _route_models() -> None:
    """Leads what chat models are asked to the policy, while a seat is playing.

    All of them, wherever in an agent they are hidden. A tool's own calls to a model are
    not led here: tools run outside of the agent's context.
    """
    generate = BaseChatModel._generate_with_cache
    agenerate = BaseChatModel._agenerate_with_cache
    should_stream = BaseChatModel._should_stream

    def answer(
        seat: _LangChainSeat, messages: Any, stop: Any, options: Any
    ) -> ChatResult:
        asked = _Asked(messages, stop, options, seat.definitions)
        _, decided = asked.decide(seat.mind)
        return _result(asked.message(decided))

    def routed(
        self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> Any:
        seat = _SEAT.get()
        if seat is None:
            return generate(self, messages, stop, run_manager, **kw)
        return answer(seat, messages, stop, kw)

    async def arouted(
        self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> Any:
        seat = _SEAT.get()
        if seat is None:
            return await agenerate(self, messages, stop, run_manager, **kw)
        return await asyncio.to_thread(answer, seat, messages, stop, kw)

    def whole(self: Any, **kw: Any) -> bool:
        return _SEAT.get() is None and should_stream(self, **kw)

    BaseChatModel._generate_with_cache = routed
    BaseChatModel._agenerate_with_cache = arouted
    BaseChatModel._should_stream = whole
