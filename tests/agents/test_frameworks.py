"""Real frameworks at the gateway: what their requests are taken for.

They are extras: where they are not installed, these tests are skipped.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.agents.gateway import Gateway
from agentgym.agents.sessions import Session
from agentgym.core.task import Task
from agentgym.episodes.recorder import Recorder

TASK = Task("t", ())


def _kinds(recorder: Recorder) -> list[str]:
    """What each request was taken for; side calls in parentheses."""
    return [
        f"({e.continuity})" if recorder.is_side_call(e) else str(e.continuity)
        for e in recorder.exchanges
    ]


# LangChain -------------------------------------------------------------------------


@pytest.fixture
def chat_model(gateway: Gateway, session: Session) -> Any:
    langchain_openai = pytest.importorskip("langchain_openai")
    return langchain_openai.ChatOpenAI(
        model="any", base_url=gateway.base_url(session), api_key=session.key
    )


def _agent(model: Any, *middleware: Any) -> Any:
    from langchain.agents import create_agent

    def find(what: str) -> str:
        """Finds things."""
        return f"{what} was found in the cupboard"

    return create_agent(
        model, [find], system_prompt="You find things.", middleware=list(middleware)
    )


def _talk(agent: Any, turns: int) -> None:
    messages: list[Any] = []
    for i in range(turns):
        messages.append({"role": "user", "content": f"call thing number {i}"})
        messages = agent.invoke({"messages": messages})["messages"]


def test_a_langchain_agent_goes_on(chat_model: Any, session: Session) -> None:
    _talk(_agent(chat_model), 3)
    assert _kinds(session.recorder) == ["first", *["continued"] * 5]
    (trajectory,) = session.recorder.trajectories(TASK)
    assert len(trajectory.steps) == 6


def test_a_langchain_agent_that_summarises(chat_model: Any, session: Session) -> None:
    from langchain.agents.middleware import SummarizationMiddleware

    summarise = SummarizationMiddleware(
        model=chat_model, trigger=("messages", 8), keep=("messages", 3)
    )
    _talk(_agent(chat_model, summarise), 4)
    kinds = _kinds(session.recorder)
    cuts = [i for i, kind in enumerate(kinds) if kind == "summarised"]
    # Each summary is asked for right before; it is itself no decision of the agent.
    assert cuts and [i + 1 for i, k in enumerate(kinds) if k.startswith("(")] == cuts
    decisions = [kind for kind in kinds if not kind.startswith("(")]
    assert {*decisions} == {"first", "continued", "summarised"}
    found = session.recorder.trajectories(TASK)
    assert len(found) == 1 + len(cuts)
    assert sum(len(t.steps) for t in found) == len(decisions)


# AutoGen ---------------------------------------------------------------------------


@pytest.fixture
def team(gateway: Gateway, session: Session) -> Callable[..., Any]:
    agents = pytest.importorskip("autogen_agentchat.agents")
    openai = pytest.importorskip("autogen_ext.models.openai")

    def make(*names: str) -> Any:
        client = openai.OpenAIChatCompletionClient(
            model="any",
            base_url=gateway.base_url(session),
            api_key=session.key,
            model_info={
                "vision": False,
                "function_calling": True,
                "json_output": False,
                "family": "unknown",
                "structured_output": False,
            },
        )
        members = [
            agents.AssistantAgent(
                name,
                client,
                description=f"The {name}",
                system_message=f"You are the {name} of a newspaper.",
            )
            for name in names
        ]
        return client, members

    return make


def test_an_autogen_group_chat(
    team: Callable[..., Any], session: Session, policy: Any
) -> None:
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat

    numbers = itertools.count()
    policy.says = lambda request: f"This is remark number {next(numbers)} about it."
    client, members = team("writer", "critic", "editor")
    chat = RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(6))
    asyncio.run(_run(chat, client, "Write about the sea."))
    kinds = _kinds(session.recorder)
    assert kinds == ["first", "sub_agent", "sub_agent", "continued", "continued"]
    # One trajectory for each member: its own part of the conversation.
    lengths = [len(t.steps) for t in session.recorder.trajectories(TASK)]
    assert sorted(lengths) == [1, 2, 2]


def test_an_autogen_group_chat_with_a_selector(
    team: Callable[..., Any], session: Session, policy: Any
) -> None:
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import SelectorGroupChat

    numbers = itertools.count()
    speakers = itertools.cycle(["writer", "critic", "editor"])

    def says(request: Any) -> str:
        if any("Only return the role" in str(m["content"]) for m in request.messages):
            return next(speakers)
        return f"This is remark number {next(numbers)} about it."

    policy.says = says
    client, members = team("writer", "critic", "editor")
    chat = SelectorGroupChat(
        members,
        model_client=client,
        termination_condition=MaxMessageTermination(4),
    )
    asyncio.run(_run(chat, client, "Write about the sea."))
    recorder = session.recorder
    said = [e.step.message["content"] for e in recorder.decisions]
    assert said == [f"This is remark number {i} about it." for i in range(3)]
    side = [e for e in recorder.exchanges if recorder.is_side_call(e)]
    assert [e.step.message["content"] for e in side] == ["writer", "critic", "editor"]


async def _run(chat: Any, client: Any, task: str) -> None:
    await chat.run(task=task)
    await client.close()


# An agent that tries several ways --------------------------------------------------


def test_a_branching_agent(client: Any, session: Session) -> None:
    def ask(messages: list[Any]) -> Any:
        answer = client.chat.completions.create(model="any", messages=messages)
        return {"role": "assistant", "content": answer.choices[0].message.content}

    def user(text: str) -> dict[str, str]:
        return {"role": "user", "content": text}

    opening = [{"role": "system", "content": "You plan."}, user("Plan a trip")]
    plan = [*opening, ask(opening)]
    for way in ("by train", "by ship"):
        tried = [*plan, user(f"Try it {way}")]
        tried.append(ask(tried))
        ask([*tried, user(f"Go on {way}")])
    assert _kinds(session.recorder) == [
        "first",
        "continued",
        "continued",
        "branched",
        "continued",
    ]
    first, second = session.recorder.trajectories(TASK)
    assert [s.replayed for s in first.steps] == [False] * 3
    assert [s.replayed for s in second.steps] == [True, False, False]
    assert first.steps[0].message == second.steps[0].message
