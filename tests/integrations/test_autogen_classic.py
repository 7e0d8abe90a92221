"""Classic AutoGen itself: agents and groups in a real world, and in training."""

# No annotations from the future: AutoGen could not make schemas of them.
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("autogen.agentchat")

from autogen import ConversableAgent, GroupChat, GroupChatManager
from errands import check_breaks_its_episodes, check_is_given_up, train

from agentgym import TrainedAgent
from agentgym.core.tools import ToolCall, ToolRunner
from agentgym.episodes.chat import ChatModel
from agentgym.errors import UsageError
from agentgym.integrations.autogen_classic import llm_config, model_client
from agentgym.integrations.base import adapter


def _user(**options: Any) -> ConversableAgent:
    return ConversableAgent(
        "customer",
        human_input_mode="NEVER",
        llm_config=False,
        is_termination_msg=lambda message: not message.get("tool_calls"),
        **options,
    )


def _answered(message: dict[str, Any]) -> bool:
    """Whether a member of a group has answered the customer."""
    at_it = message.get("tool_calls") or message.get("tool_responses")
    return message.get("name") in ("clerk", "deputy", "helper") and not at_it


def test_an_agent_and_who_runs_its_tools(trained: TrainedAgent, shop: Any) -> None:
    user = _user()
    agent = trained.to_autogen(tools=shop.tools, executor=user)
    assert isinstance(agent, ConversableAgent)
    answer = user.initiate_chat(agent, message=shop.prompt, silent=True)
    shop.check()
    assert answer.summary


def test_an_agent_for_itself(trained: TrainedAgent, shop: Any) -> None:
    agent = trained.to_autogen(tools=shop.tools)
    response = agent.run(message=shop.prompt, max_turns=6)
    response.process()
    shop.check()


@pytest.mark.parametrize("method", ["round_robin", "auto"])
def test_a_group(trained: TrainedAgent, shop: Any, method: Any) -> None:
    clerk = trained.to_autogen(tools=shop.tools, name="clerk")
    deputy = trained.to_autogen(tools=shop.tools, name="deputy")
    group = GroupChat(
        [clerk, deputy],
        messages=[],
        max_round=12,
        speaker_selection_method=method,
        select_speaker_auto_llm_config=llm_config(),
        select_speaker_auto_model_client_cls=model_client(ChatModel.of(trained)),
    )
    manager = GroupChatManager(group, llm_config=False, is_termination_msg=_answered)
    user = ConversableAgent("customer", human_input_mode="NEVER", llm_config=False)
    user.initiate_chat(manager, message=shop.prompt, silent=True)
    shop.check()


# In --------------------------------------------------------------------------------

Topic = Literal["tides", "traffic", "pollen"]


def get_report(topic: Topic) -> str:
    """Get the report on a topic."""
    return f"All is well with the {topic}."


async def call_taxi(number: int) -> str:
    """Call taxis, so many of them."""
    return f"{number} taxis are on their way."


def build(*tools: Any, name: str = "helper") -> ConversableAgent:
    # A model of its own, which is never asked in training.
    own = {"config_list": [{"model": "gpt-4o-mini", "api_key": "never-used"}]}
    return ConversableAgent(
        name,
        llm_config=own,
        human_input_mode="NEVER",
        functions=list(tools or (get_report, call_taxi)),
    )


def build_group() -> GroupChatManager:
    helper = build()
    runner = ConversableAgent("runner", human_input_mode="NEVER", llm_config=False)
    for tool in helper.tools:
        tool.register_for_execution(runner)
    group = GroupChat([helper, runner], messages=[], max_round=4)
    return GroupChatManager(
        group, llm_config=helper.llm_config, is_termination_msg=_answered
    )


@pytest.mark.parametrize("kind", ["agent", "group", "factory"])
def test_agents_and_groups_are_trained(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = {"agent": build(), "group": build_group(), "factory": build}[kind]
    result = train(
        agent, tmp_path, episodes=240, batch_size=8, eval_tasks=4, heldout_tasks=4
    )
    assert result.metrics.tool_calls > 0
    assert not {"agent_crash", "agent_timeout"} & set(result.metrics.failures)
    back = result.to_autogen(tools=[get_report, call_taxi])
    assert isinstance(back, ConversableAgent)
    # What agents say to each other in training is not shown.
    assert "call_taxi" not in capfd.readouterr().out


def _endless() -> GroupChatManager:
    members = build_group().groupchat.agents
    for member in members:
        # AutoGen has them stop after a hundred answers, if not told.
        member.update_max_consecutive_auto_reply(1_000_000)
    group = GroupChat(
        members,
        messages=[],
        max_round=1_000_000,
        speaker_selection_method="round_robin",
    )
    return GroupChatManager(group, llm_config=False)


def test_a_group_that_never_stops_in_training(tmp_path: Path) -> None:
    check_is_given_up(_endless, tmp_path, seconds=1)


def test_a_group_that_never_stops_when_it_drives(tmp_path: Path) -> None:
    result = train(build, tmp_path, agent_timeout=3, episodes=48)
    check_breaks_its_episodes(result, _endless)


def test_what_is_wrong_with_an_agent_is_said() -> None:
    native = adapter("autogen")
    toolless = ConversableAgent("toolless", llm_config=False)
    with pytest.raises(UsageError, match="has no tools"):
        native.extract_tools(toolless)
    signature = {"name": "lost", "description": "", "parameters": {"type": "object"}}
    agent = build()
    agent.update_tool_signature({"type": "function", "function": signature}, False)
    with pytest.raises(UsageError, match="Tool 'lost' has no function"):
        native.extract_tools(agent)

    def other(topic: str) -> str:
        """Get another report."""
        return topic

    other.__name__ = "get_report"
    with pytest.raises(UsageError, match="'helper': Two tools are named 'get_report'"):
        native.extract_tools(build(get_report, other))

    def add(a, b):  # type: ignore[no-untyped-def]
        """Add two numbers."""
        return a + b

    # AutoGen sees to that itself.
    with pytest.raises(TypeError, match="missing for the following parameters: 'a'"):
        build(add)


def test_a_tool_that_raises_costs_its_call_only() -> None:
    def explode(count: int) -> str:
        """Explodes."""
        raise ValueError("boom")

    (tool,) = adapter("autogen").extract_tools(build(explode))
    result = ToolRunner().run(
        {tool.name: tool}, ToolCall("explode", {"count": 1}), None
    )
    assert result.failure == "tool_error" and "boom" in result.content
