"""Adapter for LangChain: graphs of `create_agent`, and executors."""

from __future__ import annotations

from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.prompts import (
    ChatPromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
)
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentgym.core.tools import Tool
from agentgym.episodes.chat import ChatModel
from agentgym.errors import MissingExtraError, UsageError
from agentgym.integrations import react
from agentgym.integrations.base import AgentHarness, FrameworkAdapter, run_tool
from agentgym.integrations.langchain import training
from agentgym.integrations.langchain.model import AgentGymChat

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
    """LangChain: graphs of `create_agent`, and executors."""

    def __init__(self) -> None:
        training.note_duplicate_tools()

    def make_agent(
        self,
        chat: ChatModel,
        llm: BaseChatModel | None,
        tools: list[Any],
        about: dict[str, Any],
        *,
        style: Literal["graph", "executor"] = "graph",
        agent_type: AgentType = "tool_calling",
        system_prompt: str | None = None,
        **options: Any,
    ) -> Any:
        """Returns a graph, as `create_agent` makes it, or an `AgentExecutor`.

        Args:
            chat: See `FrameworkAdapter`.
            llm: See `FrameworkAdapter`.
            tools: See `FrameworkAdapter`.
            about: See `FrameworkAdapter`.
            style: "graph", or "executor" for `langchain_classic`.
            agent_type: How an executor calls tools.
            system_prompt: Default: the scenario's system prompt.
            **options: More arguments for `create_agent` or `AgentExecutor`.
        """
        native = [_native_tool(tool) for tool in tools]
        prompt = system_prompt or str(about.get("system_prompt") or "")
        model = AgentGymChat(chat=chat, llm=llm)
        if style == "graph":
            if agent_type != "tool_calling":
                raise UsageError(
                    'agent_type works with executors only. Add style="executor".'
                )
            return create_agent(model, native, system_prompt=prompt or None, **options)
        return _make_executor(model, native, prompt, agent_type, options)

    def owned_tools(self, agent: Any) -> list[tuple[str, list[Tool]]]:
        """See `FrameworkAdapter`."""
        tools = training.tools_of(agent)
        return [("", [training.routed_tool(tool).tool for tool in tools])]

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        executor = hasattr(agent, "input_keys")
        return (training.ExecutorHarness if executor else training.GraphHarness)(agent)

    def stateless(self, agent: Any) -> bool:
        """Graphs keep their state per thread; executors only in a memory."""
        return getattr(agent, "memory", None) is None

    def persistent_state(self, agent: Any) -> str:
        """See `FrameworkAdapter`."""
        return "its store" if getattr(agent, "store", None) is not None else ""


def _native_tool(tool: Any) -> BaseTool:
    """Returns a tool as a LangChain tool."""
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


def _make_executor(
    model: AgentGymChat,
    tools: list[BaseTool],
    system: str,
    agent_type: AgentType,
    options: dict[str, Any],
) -> Any:
    """Returns an `AgentExecutor`."""
    try:
        from langchain_classic import agents
    except ModuleNotFoundError:
        raise MissingExtraError(
            "An executor",
            "langchain",
            "langchain-classic is not installed (supported: "
            "langchain-classic>=1.0.8,<1.1)",
        ) from None
    system = system.replace("{", "{{").replace("}", "}}")
    history = MessagesPlaceholder("chat_history", optional=True)
    if agent_type != "tool_calling":
        options = {"handle_parsing_errors": True, **options}
        definitions = [convert_to_openai_tool(tool) for tool in tools]
        model = model.model_copy(update={"text_tools": definitions})
    templates = {"zero_shot_react": _ZERO_SHOT, "conversational_react": _CONVERSATION}
    if agent_type in templates:
        template = templates[agent_type].format(system=system)
        tools = [_text_tool(tool) for tool in tools]
        make, prompt = agents.create_react_agent, PromptTemplate.from_template(template)
    elif agent_type in ("tool_calling", "structured_chat"):
        if agent_type == "tool_calling":
            make = agents.create_tool_calling_agent
            system = system or "You are a helpful assistant."
            last = [("human", "{input}"), MessagesPlaceholder("agent_scratchpad")]
        else:
            make = agents.create_structured_chat_agent
            system = _STRUCTURED.format(system=system)
            last = [("human", _STRUCTURED_INPUT)]
        prompt = ChatPromptTemplate.from_messages([("system", system), history, *last])
    else:
        known = ", ".join(["tool_calling", "structured_chat", *templates])
        raise UsageError(f"Invalid agent_type '{agent_type}'. Available: {known}.")
    return agents.AgentExecutor(
        agent=make(model, tools, prompt), tools=tools, **options
    )


def _text_tool(tool: BaseTool) -> BaseTool:
    """The tool with a single string input, which is all these agents can pass."""
    only = react.only_parameter(convert_to_openai_tool(tool)["function"]["parameters"])

    def run(text: str) -> Any:
        return tool.invoke(react.parse_input(text, only))

    return TextTool(name=tool.name, description=tool.description, func=run)
