"""Adapter for CrewAI: agents and crews."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from crewai import Agent, BaseLLM, Crew
from crewai.events.utils.console_formatter import set_suppress_console_output
from crewai.tools import BaseTool
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import BaseModel, ConfigDict

from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.episodes import chat as chats
from agentgym.episodes.chat import MODEL, ChatModel, Savings, Turn, jsonable
from agentgym.errors import UsageError
from agentgym.integrations.base import (
    AgentHarness,
    FrameworkAdapter,
    run_tool,
    signature_tool,
)
from agentgym.integrations.harness import RoutedTool

_TASK = re.compile(
    r"\A\s*Current Task: (?P<text>.*?)"
    r"(?:\n+This is the expected criteria for your final answer: .*)?\Z",
    re.DOTALL,
)
"""How CrewAI words an agent's task."""
_DELEGATE = "delegate_work_to_coworker"
_ASK = "ask_question_to_coworker"
_COWORKERS = re.compile(r"following coworkers: (?P<names>.*?)\n")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


class CrewAIAdapter(FrameworkAdapter):
    """CrewAI: agents and crews."""

    def make_agent(
        self,
        chat: ChatModel,
        llm: BaseLLM | None,
        tools: list[Any],
        about: dict[str, Any],
        *,
        role: str | None = None,
        goal: str | None = None,
        backstory: str | None = None,
        **options: Any,
    ) -> Agent:
        """Returns an `Agent` for tasks, crews and flows.

        Args:
            chat: See `FrameworkAdapter`.
            llm: See `FrameworkAdapter`.
            tools: See `FrameworkAdapter`.
            about: See `FrameworkAdapter`.
            role: Default: made from the scenario's name.
            goal: Default: a generic goal.
            backstory: Default: the scenario's system prompt.
            **options: More arguments for `Agent`.
        """
        scenario = str(about.get("scenario") or "assistant").rpartition(":")[2]
        native = [_native_tool(tool) for tool in tools]
        return Agent(
            role=role or scenario.replace("_", " ").capitalize(),
            goal=goal or "Do what is asked, with the right tool and parameters",
            backstory=backstory or about.get("system_prompt") or "You use tools.",
            llm=AgentGymLLM(
                model=MODEL,
                chat=chat,
                llm=llm,
                definitions={t.name: _definition(t).to_openai() for t in native},
            ),
            tools=native,
            **options,
        )

    def owned_tools(self, agent: Any) -> Iterator[tuple[str, list[Tool]]]:
        """See `FrameworkAdapter`."""
        for owner in _owners(agent):
            name = getattr(owner, "role", None) or "a task"
            yield name, [_routed(tool).tool for tool in owner.tools or ()]

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        return _CrewHarness(agent)

    def persistent_state(self, agent: Any) -> str:
        """See `FrameworkAdapter`."""
        return "its memory" if getattr(agent, "memory", None) else ""


# The language model ------------------------------------------------------------------


class AgentGymLLM(BaseLLM):
    """A trained agent as a CrewAI language model.

    As the model of a crew's manager, it delegates each task to the best coworker and
    returns the coworker's answer.

    Attributes:
        chat: Decides and counts tokens.
        llm: Writes texts and takes uncertain decisions; None if not used.
        definitions: Tool definitions by name. CrewAI rewrites schemas to make every
            parameter required; the policy gets the original schemas.
    """

    chat: Any = None
    llm: Any = None
    definitions: dict[str, Any] = {}

    @property
    def savings(self) -> Savings:
        """The calls and tokens saved by not asking the language model."""
        return self.chat.savings

    def call(
        self,
        messages: str | list[Any],
        tools: list[Any] | None = None,
        callbacks: list[Any] | None = None,
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: type[BaseModel] | None = None,
    ) -> Any:
        """Returns a list of tool calls or the agent's text."""
        said = _openai_messages(messages)
        offered = [
            self.definitions.get(tool["function"]["name"], tool) for tool in tools or ()
        ]
        if {tool["function"]["name"] for tool in offered} == {_DELEGATE, _ASK}:
            return self._manage(said, offered[0])
        form = (
            chats.json_form(response_model.model_json_schema())
            if response_model
            else None
        )
        turn, answer = self.chat.decide(said, offered, response_format=form)
        if turn is Turn.DEFER:
            return self._ask_llm(messages, tools=tools, response_model=response_model)
        if turn is Turn.WORDS:
            return self._ask_llm(chats.retold(said, answer))
        done = answer.completion
        self._track_token_usage_internal(done.usage)
        if response_model is not None:
            return response_model.model_validate_json(done.content or "")
        return [call.to_openai() for call in done.calls] or done.content or ""

    async def acall(self, *given: Any, **named: Any) -> Any:
        """See `call`."""
        return await asyncio.to_thread(self.call, *given, **named)

    def supports_function_calling(self) -> bool:
        """Always true."""
        return True

    def supports_stop_words(self) -> bool:
        """Always false: its texts need no stop words."""
        return True

    def get_context_window_size(self) -> int:
        """Size of the context, in tokens."""
        return 16_384

    def get_input_tokens_count(self, *given: Any, **named: Any) -> int:
        """Estimated tokens of a conversation: one per four characters."""
        return len(str(given)) // 4

    def _ask_llm(self, messages: Any, **options: Any) -> Any:
        before = self.llm.get_token_usage_summary().total_tokens
        answer = self.llm.call(messages, **options)
        after = self.llm.get_token_usage_summary().total_tokens
        self.savings.note_llm(after - before)
        return answer

    def _manage(self, messages: list[Message], delegate: dict[str, Any]) -> Any:
        """Delegates a task to a coworker, or returns the coworker's answer."""
        if messages[-1]["role"] == "tool":
            return messages[-1]["content"]
        found = _COWORKERS.search(delegate["function"]["description"])
        names = [name.strip() for name in found["names"].split(",")] if found else []
        coworker = {"coworker": {"type": "string", "enum": names}}
        schema = {"type": "object", "properties": coworker, "required": ["coworker"]}
        tool = Tool(_DELEGATE, "Hands the task to a coworker.", schema).to_openai()
        _, answer = self.chat.decide(messages, [tool], tool_choice="required")
        call = answer.completion.calls[0]
        task = messages[-1]["content"]
        call.arguments.update(task=task, context=task)
        return [call.to_openai()]


def _openai_messages(messages: str | list[Any]) -> list[Message]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    made = [chats.plain_message(message) for message in messages]
    for message in made:
        wrapped = _TASK.match(str(message["content"]))
        if message["role"] == "user" and wrapped is not None:
            # The user's message, without the text that CrewAI adds.
            message["content"] = wrapped["text"].strip()
    return made


# Agents that are handed out ----------------------------------------------------------


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="allow")


def _never(arguments: Any, result: Any) -> bool:
    """Never caches: the same call may return something else next time."""
    return False


class _OurTool(BaseTool):
    """An AgentGym tool, with its original schema and JSON results."""

    ours: Any

    def _run(self, **arguments: Any) -> Any:
        return run_tool(self.ours, arguments)


def _native_tool(tool: Any) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    ours = tool if isinstance(tool, Tool) else signature_tool(tool)
    schema = dict(ours.parameters)

    class Arguments(_Arguments):
        @classmethod
        def model_json_schema(cls, *given: Any, **named: Any) -> dict[str, Any]:
            # A copy, because CrewAI modifies the schema.
            return copy.deepcopy(schema)

    return _OurTool(
        name=ours.name,
        description=ours.description,
        args_schema=Arguments,
        ours=ours,
        cache_function=_never,
    )


def _definition(tool: BaseTool) -> Tool:
    schema = tool.args_schema.model_json_schema()
    schema.setdefault("type", "object")
    return Tool(sanitize_tool_name(tool.name), _plain_description(tool), schema)


def _plain_description(tool: BaseTool) -> str:
    # CrewAI may prepend the tool's name and arguments to its description.
    return tool.description.rpartition("Tool Description: ")[2].strip()


# Agents in training ------------------------------------------------------------------


class _RoutedTool(BaseTool):
    """An agent's tool, whose calls go through the episode."""

    harness: Any
    routed: Any
    inner: Any

    def _run(self, *given: Any, **arguments: Any) -> Any:
        return self.routed.call(
            self.harness.task,
            {name: jsonable(value) for name, value in arguments.items()},
            lambda: self.inner.run(*given, **arguments),
        )


class _CrewHarness(AgentHarness):
    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self._said: list[str] = []
        definitions: dict[str, Any] = {}
        for owner in _owners(agent):
            owner.tools = [self._route(tool) for tool in owner.tools or ()]
            for tool in owner.tools:
                definition = tool.routed.tool
                definitions[definition.name] = definition.to_openai()
        model = AgentGymLLM(model=MODEL, chat=self.chat, definitions=definitions)
        for member in getattr(agent, "agents", None) or [agent]:
            member.llm = model
            member.function_calling_llm = None
        if getattr(agent, "manager_llm", None) is not None:
            agent.manager_llm = AgentGymLLM(model=MODEL, chat=self.aside)
        if getattr(agent, "manager_agent", None) is not None:
            agent.manager_agent.llm = AgentGymLLM(model=MODEL, chat=self.aside)

    def _route(self, tool: BaseTool) -> _RoutedTool:
        return _RoutedTool(
            name=tool.name,
            description=_plain_description(tool),
            args_schema=tool.args_schema,
            harness=self,
            routed=_routed(tool),
            inner=tool,
            result_as_answer=tool.result_as_answer,
            cache_function=_never,
        )

    def begin(self, messages: Sequence[Message]) -> str | None:
        users = [m for m in messages if m.get("role") == "user"]
        self._said = [str(m.get("content") or "") for m in users]
        return self._kick_off()

    def reply(self, content: str) -> str | None:
        self._said.append(content)
        return self._kick_off()

    def _kick_off(self) -> str:
        # In a separate context, because CrewAI records events per context.
        return contextvars.copy_context().run(self._run)

    def _run(self) -> str:
        # Nobody reads panels for each step of thousands of episodes.
        set_suppress_console_output(True)
        # A crew starts each run from scratch, so it gets all of the user's messages.
        text = "\n".join(self._said)
        if not isinstance(self._agent, Crew):
            return str(self._agent.kickoff(text).raw)
        texts = _texts(self._agent)
        try:
            inputs = dict.fromkeys(self._agent.fetch_inputs(), text)
            return str(self._agent.kickoff(inputs=inputs).raw)
        finally:
            # After a run, the crew's texts no longer contain their placeholders.
            for owner, field, written in texts:
                setattr(owner, field, written)


def _owners(agent: Any) -> list[Any]:
    """The crew's agents and tasks: both may have tools."""
    if not isinstance(agent, Crew):
        return [agent]
    if not any(_PLACEHOLDER.search(task.description) for task in agent.tasks):
        raise UsageError(
            "No task of the crew has a placeholder for the user's request. Add one, "
            "for example Task(description='{request}', ...). A crew that has already "
            "run has lost its placeholders: pass a function that creates the crew."
        )
    return [*agent.agents, *agent.tasks]


def _texts(crew: Crew) -> list[tuple[Any, str, str]]:
    """Texts that may contain placeholders: object, field and text."""
    fields = ("description", "expected_output", "role", "goal", "backstory")
    return [
        (owner, field, getattr(owner, field))
        for owner in _owners(crew)
        for field in fields
        if hasattr(owner, field)
    ]


def _routed(tool: BaseTool) -> RoutedTool:
    return RoutedTool(replace(_definition(tool), function=tool.run))
