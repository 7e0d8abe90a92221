"""LangChain tools and executors around AgentGym's chat model."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.prompts import (
    ChatPromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
)
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool

from agentgym.core.tools import Tool
from agentgym.errors import MissingExtraError, UsageError
from agentgym.integrations import react
from agentgym.integrations.base import (
    run_tool,
)
from agentgym.integrations.langchain.model import AgentGymChat, definition_of

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


def native_tool(tool: Any) -> BaseTool:
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


def make_executor(
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
    model = model.model_copy(update={"text_tools": [definition_of(t) for t in tools]})
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
        raise UsageError(f"Invalid agent_type '{agent_type}'. Available: {known}.")
    in_text = [_text_tool(tool) for tool in tools]
    template = PromptTemplate.from_template(templates[agent_type].format(system=system))
    agent = agents.create_react_agent(model, in_text, template)
    return agents.AgentExecutor(agent=agent, tools=in_text, **options)


def _text_tool(tool: BaseTool) -> BaseTool:
    """The tool with a single string input, which is all these agents can pass."""
    only = react.only_parameter(definition_of(tool)["function"]["parameters"])

    def run(text: str) -> Any:
        return tool.invoke(react.parse_input(text, only))

    return TextTool(name=tool.name, description=tool.description, func=run)
