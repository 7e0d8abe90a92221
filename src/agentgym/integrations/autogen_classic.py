"""Adapter for classic AutoGen (`import autogen`): `ConversableAgent` and `GroupChat`.

In classic AutoGen an agent sends its tool calls to its conversation partner, which
runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autogen import (
    Agent,
    ConversableAgent,
    GroupChat,
    GroupChatManager,
    LLMConfig,
    OpenAIWrapper,
)
from autogen.io import IOStream
from autogen.oai.oai_models import ChatCompletion
from autogen.tools import Tool as NativeTool

from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.episodes import chat as chats
from agentgym.episodes.chat import MODEL, ChatModel, Turn
from agentgym.episodes.episode import AgentTask
from agentgym.errors import UsageError
from agentgym.integrations.base import AgentHarness, FrameworkAdapter, run_tool


class ClassicAutoGenAdapter(FrameworkAdapter):
    """Classic AutoGen: conversable agents and group chats."""

    def make_agent(
        self,
        chat: ChatModel,
        llm: LLMConfig | dict[str, Any] | None,
        tools: list[Any],
        about: dict[str, Any],
        *,
        name: str = "agentgym",
        system_message: str | None = None,
        executor: ConversableAgent | None = None,
        **options: Any,
    ) -> ConversableAgent:
        """Returns a `ConversableAgent`, to talk with or to add to a group.

        Args:
            chat: See `FrameworkAdapter`.
            llm: See `FrameworkAdapter`.
            tools: See `FrameworkAdapter`.
            about: See `FrameworkAdapter`.
            name: The agent's name.
            system_message: Default: the scenario's system prompt.
            executor: The agent that runs the tools, if another agent talks with this
                one. Not needed in a group or with `agent.run`.
            **options: More arguments for `ConversableAgent`.
        """
        prompt = system_message or about.get("system_prompt") or ""
        with _quiet():
            agent = ConversableAgent(
                name,
                system_message=prompt,
                llm_config=llm_config(),
                **{"human_input_mode": "NEVER", **options},
            )
            for tool in tools:
                native = _native_tool(tool)
                agent.register_for_llm()(native)
                if isinstance(tool, Tool):
                    # The tool's schema, not the schema of the function that runs it.
                    agent.update_tool_signature(tool.to_openai(), False, True)
                for runs in filter(None, (agent, executor)):
                    native.register_for_execution(runs)
        # Last, because the agent recreates its client for each new tool.
        agent.register_model_client(model_client(chat, llm))
        return agent

    def owned_tools(self, agent: Any) -> Iterator[tuple[str, list[Tool]]]:
        """See `FrameworkAdapter`."""
        for member in _members(agent):
            mine = [_our_tool(t, agent) for t in _definitions(member)]
            # An agent keeps only the last of several functions with the same name.
            functions = {tool.func: tool.name for tool in member.tools}
            times = Counter(functions.values())
            yield member.name, [t for t in mine for _ in range(times[t.name] or 1)]

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        return _ClassicHarness(agent)


# The model ---------------------------------------------------------------------------


def llm_config() -> dict[str, Any]:
    """The `llm_config` that an agent needs to use `model_client`."""
    entry = {"model": MODEL, "model_client_cls": "AgentGymModelClient"}
    return {"config_list": [entry]}


def model_client(chat: ChatModel, llm: Any = None) -> type:
    """Returns a model client class for `agent.register_model_client`.

    In `GroupChat(select_speaker_auto_model_client_cls=...)` it selects one of the
    members by name.
    """
    asked = OpenAIWrapper(**_plain(llm)) if llm is not None else None

    class AgentGymModelClient:
        savings = chat.savings

        def __init__(self, config: dict[str, Any], **options: Any) -> None: ...

        def create(self, params: dict[str, Any]) -> Any:
            said = [chats.plain_message(m) for m in params["messages"]]
            tools, choice = params.get("tools") or [], params.get("tool_choice")
            form = chats.speaker_form(said)
            turn, answer = chat.decide(
                said, tools, tool_choice=choice, response_format=form
            )
            if turn is Turn.ACT or asked is None:
                made = ChatCompletion.model_validate(answer.completion.to_dict())
                if form is not None:
                    message = made.choices[0].message
                    message.content = chats.speaker_of(message.content)
                return made
            if turn is Turn.WORDS:
                response = asked.create(messages=chats.retold(said, answer))
            else:
                offered = {"tools": tools} if tools else {}
                response = asked.create(messages=params["messages"], **offered)
            used = response.usage
            chat.savings.note_llm(used.total_tokens if used is not None else 0)
            return response

        @staticmethod
        def message_retrieval(response: Any) -> list[Any]:
            messages = [choice.message for choice in response.choices]
            return [m if m.tool_calls else m.content or "" for m in messages]

        @staticmethod
        def cost(response: Any) -> float:
            return 0.0

        @staticmethod
        def get_usage(response: Any) -> dict[str, Any]:
            used = response.usage.model_dump() if response.usage is not None else {}
            return {**used, "cost": 0.0, "model": response.model}

    return AgentGymModelClient


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences AutoGen's repeated reminders to register a client."""
    logger = logging.getLogger("autogen.oai.client")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _plain(llm: LLMConfig | dict[str, Any]) -> dict[str, Any]:
    return dict(llm) if isinstance(llm, dict) else llm.model_dump()


def _native_tool(tool: Any) -> NativeTool:
    if isinstance(tool, NativeTool):
        return tool
    if not isinstance(tool, Tool):
        return NativeTool(func_or_tool=tool)

    def run(**arguments: Any) -> str:
        return run_tool(tool, arguments)

    return NativeTool(name=tool.name, description=tool.description, func_or_tool=run)


# Agents in training ------------------------------------------------------------------


class _ClassicHarness(AgentHarness):
    """An agent that talks with a simulated user, or a group."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        group = _group(agent)
        members = _members(agent)
        names = {t["function"]["name"] for m in members for t in _definitions(m)}
        functions = {name: self._routed(name) for name in names}
        # A single agent's conversation partner runs its tools and reads its answers.
        self._user = ConversableAgent(
            "user",
            human_input_mode="NEVER",
            llm_config=False,
            function_map={} if group else functions,
            is_termination_msg=lambda message: not message.get("tool_calls"),
        )
        for member in members:
            if member.client is not None:
                with _quiet():
                    member.client = OpenAIWrapper(
                        **llm_config(), tools=_definitions(member) or None
                    )
                member.client.register_model_client(model_client(self.chat))
            runs = set(member.function_map) & names
            member.register_function({n: functions[n] for n in runs}, True)
            member.get_human_input = self._human
        if group is not None:
            group.select_speaker_auto_llm_config = llm_config()
            group.select_speaker_auto_model_client_cls = model_client(self.aside)
            # The manager uses a copy of the group, made when the manager was made.
            agent.register_reply(
                Agent,
                GroupChatManager.run_chat,
                config=group,
                reset_config=GroupChat.reset,
            )

    def play(self, task: AgentTask) -> None:
        """See `AgentHarness`. Also hides AutoGen's output, which `silent` misses."""
        with IOStream.set_default(_SilentIO()):
            super().play(task)

    def begin(self, messages: Sequence[Message]) -> str | None:
        for agent in (self._user, self._agent, *_members(self._agent)):
            agent.reset()
        if (group := _group(self._agent)) is not None:
            group.reset()
        *before, last = messages
        for message in before:
            pair = [self._user, self._agent]
            if message.get("role") == "assistant":
                pair.reverse()
            content = str(message.get("content") or "")
            pair[0].send(content, pair[1], request_reply=False, silent=True)
        return self.reply(str(last.get("content") or ""))

    def reply(self, content: str) -> str | None:
        self._user.initiate_chat(
            self._agent, message=content, clear_history=False, silent=True
        )
        return str(self._said()[-1].get("content") or "")

    def _said(self) -> list[Message]:
        group = _group(self._agent)
        return group.messages if group else self._user.chat_messages[self._agent]

    def _routed(self, name: str) -> Callable[..., str]:
        def run(**arguments: Any) -> str:
            content = self.task.call_tool(name, arguments)
            value = json.loads(content)
            # As classic AutoGen does: strings unchanged, everything else as JSON.
            return value if isinstance(value, str) else content

        return run

    def _human(self, prompt: str, **options: Any) -> str:
        """The simulated user's reply when a group member asks for human input."""
        said = self._said()
        reply = self.task.reply(str(said[-1].get("content") or "")) if said else None
        return "exit" if reply is None else reply


class _SilentIO:
    """Discards what AutoGen prints."""

    def print(self, *objects: Any, **options: Any) -> None: ...

    def send(self, message: Any) -> None: ...

    def input(self, prompt: str = "", *, password: bool = False) -> str:
        return "exit"


def _group(agent: Any) -> Any:
    return agent.groupchat if isinstance(agent, GroupChatManager) else None


def _members(agent: Any) -> list[Any]:
    group = _group(agent)
    return [agent] if group is None else list(group.agents)


def _definitions(member: Any) -> list[dict[str, Any]]:
    return list((member.llm_config or {}).get("tools") or ())


def _our_tool(definition: dict[str, Any], agent: Any) -> Tool:
    tool = Tool.from_openai(definition)
    functions: dict[str, Any] = {}
    for member in _members(agent):
        functions |= {t.name: t.func for t in member.tools}
        functions |= member.function_map
    function = functions.get(tool.name)
    if function is None:
        raise UsageError(
            f"Tool '{tool.name}' has no function. Register one with the agent, or for "
            "execution with a member of its group."
        )

    def run(**arguments: Any) -> Any:
        value = function(**arguments)
        return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value

    return Tool(tool.name, tool.description, tool.parameters, run)


async def _awaited(value: Any) -> Any:
    return await value
