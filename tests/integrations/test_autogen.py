"""AutoGen itself: agents and teams in a real world, and in training."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("autogen_agentchat")

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core.tools import FunctionTool, StaticWorkbench
from errands import check_breaks_its_episodes, check_is_given_up, train, write_tasks

from agentgym import TrainedAgent, Trainer
from agentgym.core.events import Event, IterationDone
from agentgym.core.tools import ToolCall, ToolRunner
from agentgym.episodes.chat import ChatModel
from agentgym.errors import UsageError
from agentgym.integrations.autogen import AgentGymClient
from agentgym.integrations.base import adapter
from agentgym.utils.objects import name_of


def test_an_assistant(trained: TrainedAgent, shop: Any) -> None:
    agent = trained.to_autogen(tools=shop.tools)
    result = asyncio.run(agent.run(task=shop.prompt))
    shop.check()
    assert result.messages[-1].to_text()


def test_a_streaming_assistant(trained: TrainedAgent, shop: Any) -> None:
    agent = trained.to_autogen(tools=shop.tools, model_client_stream=True)
    result = asyncio.run(agent.run(task=shop.prompt))
    shop.check()
    assert result.messages[-1].to_text()


def test_a_round_robin_with_a_user(trained: TrainedAgent, shop: Any) -> None:
    clerk = trained.to_autogen(tools=shop.tools, name="clerk")
    customer = UserProxyAgent("customer", input_func=lambda prompt: "Thank you.")
    team = RoundRobinGroupChat(
        [clerk, customer], termination_condition=MaxMessageTermination(3)
    )
    result = asyncio.run(team.run(task=shop.prompt))
    shop.check()
    assert [m.source for m in result.messages][-1] == "customer"


def test_a_selector_on_our_client(trained: TrainedAgent, shop: Any) -> None:
    clerks = [
        trained.to_autogen(tools=shop.tools, name=name, description=f"The {name}.")
        for name in ("clerk", "deputy")
    ]
    ended = TextMessageTermination("clerk") | TextMessageTermination("deputy")
    team = SelectorGroupChat(
        clerks,
        model_client=AgentGymClient(ChatModel.of(trained)),
        termination_condition=ended,
    )
    result = asyncio.run(team.run(task=shop.prompt))
    shop.check()
    assert result.messages[-1].source in ("clerk", "deputy")


# In --------------------------------------------------------------------------------

Topic = Literal["tides", "traffic", "pollen"]


def get_report(topic: Topic) -> str:
    """Get the report on a topic."""
    return f"All is well with the {topic}."


def call_taxi(number: int) -> str:
    """Call taxis, so many of them."""
    return f"{number} taxis are on their way."


def build(
    tools: Any = (get_report, call_taxi), name: str = "helper", **options: Any
) -> AssistantAgent:
    # Its own model, which is never asked in training.
    client = AgentGymClient(ChatModel(lambda request: pytest.fail("asked")))
    given = None if tools is None else list(tools)
    return AssistantAgent(name, client, tools=given, **options)


def _with_user(**options: Any) -> RoundRobinGroupChat:
    # In training the task's user speaks in its place.
    user = UserProxyAgent("user", **options)
    return RoundRobinGroupChat([build(), user])


@pytest.mark.parametrize("kind", ["agent", "team", "user", "asked", "factory"])
def test_agents_and_teams_are_trained(tmp_path: Path, kind: str) -> None:
    ended = MaxMessageTermination(2)
    agent = {
        "agent": build(),
        "team": RoundRobinGroupChat([build()], termination_condition=ended),
        "user": _with_user(),
        "asked": _with_user(input_func=lambda prompt: pytest.fail("asked")),
        "factory": build,
    }[kind]
    result = train(
        agent, tmp_path, episodes=240, batch_size=8, eval_tasks=4, heldout_tasks=4
    )
    assert result.metrics.tool_calls > 0
    assert not {"agent_crash", "agent_timeout"} & set(result.metrics.failures)
    back = result.to_autogen(tools=[get_report, call_taxi])
    assert isinstance(back, AssistantAgent)


def test_many_tools_at_a_time(tmp_path: Path) -> None:
    def slow_report(topic: Topic) -> str:
        time.sleep(0.3)
        return topic

    def slow_taxi(number: int) -> str:
        time.sleep(0.3)
        return str(number)

    slow = [
        FunctionTool(slow_report, "Get the report on a topic.", name="get_report"),
        FunctionTool(slow_taxi, "Call taxis, so many of them.", name="call_taxi"),
    ]
    failures = []

    def listen(event: Event) -> None:
        if isinstance(event, IterationDone):
            failures.append(event.values["failures"])

    # More than a pool of Python's has threads: they may not wait for each other.
    Trainer(home=tmp_path / "home", listeners=[listen]).train(
        "task_file",
        agent=name_of(lambda: build(slow)),
        tasks=str(write_tasks(tmp_path)),
        agent_concurrency=2 * ((os.cpu_count() or 1) + 4),
        episodes=96,
        batch_size=8,
        eval_tasks=4,
        heldout_tasks=4,
    )
    assert failures and not any("timeout" in kinds for kinds in failures)


def _endless() -> RoundRobinGroupChat:
    # Nothing says when it is over.
    return RoundRobinGroupChat([build(name="one"), build(name="two")])


def test_a_team_that_never_stops_in_training(tmp_path: Path) -> None:
    check_is_given_up(_endless, tmp_path, seconds=1)


def test_a_team_that_never_stops_when_it_drives(tmp_path: Path) -> None:
    result = train(build, tmp_path, agent_timeout=3, episodes=48)
    check_breaks_its_episodes(result, _endless)


def test_what_is_wrong_with_an_agent_is_said() -> None:
    native = adapter("autogen")
    with pytest.raises(UsageError, match="has no tools"):
        native.extract_tools(build(tools=()))
    report = FunctionTool(get_report, "Get the report on a topic.")
    twice = [StaticWorkbench([report]), StaticWorkbench([report])]
    with pytest.raises(UsageError, match="'helper': Two tools are named 'get_report'"):
        native.extract_tools(build(tools=None, workbench=twice))
    team = RoundRobinGroupChat([build(name="one"), build(name="two")])
    names = [tool.name for tool in native.extract_tools(team)]
    assert sorted(names) == ["call_taxi", "get_report"]


def test_a_tool_that_raises_costs_its_call_only() -> None:
    def explode(count: int) -> str:
        """Explodes."""
        raise ValueError("boom")

    (tool,) = adapter("autogen").extract_tools(build(tools=[explode]))

    result = ToolRunner().run(
        {tool.name: tool}, ToolCall("explode", {"count": 1}), None
    )
    assert result.failure == "tool_error" and "boom" in result.content
