"""LangChain itself: every style in a real world, agents of others in training."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langchain_classic")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

import agentgym
from agentgym import TrainedAgent, TrainingConfig
from agentgym.core.tools import ToolRunner
from agentgym.episodes.chat import TO_SAY
from agentgym.errors import FailureBudgetExceeded, UsageError
from agentgym.integrations.base import adapter
from agentgym.integrations.langchain import AgentGymMiddleware
from agentgym.runs.resolve import resolve
from agentgym.utils.objects import name_of

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


class ScriptedModel(BaseChatModel):
    """A chat model that says one thing, and counts how often it was asked."""

    says: str = "The language model speaks."
    asked: list[Any] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: Any, stop: Any = None, **options: Any) -> ChatResult:
        self.asked.append((messages, options.get("tools")))
        usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}
        message = AIMessage(self.says, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


# Out -------------------------------------------------------------------------------


def test_a_graph(trained: TrainedAgent, shop: Any) -> None:
    agent = trained.to_langchain(tools=shop.tools)
    state = agent.invoke({"messages": [HumanMessage(shop.prompt)]})
    shop.check()
    last = state["messages"][-1]
    assert last.text and last.usage_metadata["total_tokens"] > 0


@pytest.mark.parametrize(
    "agent_type",
    ["tool_calling", "zero_shot_react", "conversational_react", "structured_chat"],
)
def test_executors(trained: TrainedAgent, shop: Any, agent_type: str) -> None:
    agent = trained.to_langchain(
        tools=shop.tools, style="executor", agent_type=agent_type
    )
    history: Any = "" if agent_type == "conversational_react" else []
    answer = agent.invoke({"input": shop.prompt, "chat_history": history})
    shop.check()
    assert answer["output"]


def test_awaited_and_streamed(trained: TrainedAgent, shop: Any) -> None:
    agent = trained.to_langchain(tools=shop.tools)

    async def stream() -> list[Any]:
        given = {"messages": [HumanMessage(shop.prompt)]}
        parts = agent.astream(given, stream_mode="messages")
        return [part async for part, _ in parts]

    parts = asyncio.run(stream())
    shop.check()
    assert sum(bool(part.content) for part in parts) > 3
    assert any(getattr(part, "tool_call_chunks", None) for part in parts)


def test_the_chat_model_for_itself(trained: TrainedAgent) -> None:
    from agentgym.episodes.chat import ChatModel
    from agentgym.integrations.langchain import AgentGymChat

    tools = [t.to_openai() for t in trained.tools]
    model = AgentGymChat(chat=ChatModel.of(trained)).bind_tools(tools)
    question = "Where is my parcel? My order is 12345."
    single = model.invoke(question)
    both = model.batch([question, question])
    assert single.tool_calls[0]["args"] == both[1].tool_calls[0]["args"]
    assert 0 <= single.response_metadata["confidence"] <= 1
    forced = AgentGymChat(chat=ChatModel.of(trained)).bind_tools(
        tools, tool_choice="track_shipment"
    )
    assert forced.invoke(question).tool_calls[0]["name"] == "track_shipment"


def test_a_language_model_writes_the_words(trained: TrainedAgent, shop: Any) -> None:
    llm = ScriptedModel(asked=[])
    agent = trained.to_langchain(tools=shop.tools, llm=llm)
    state = agent.invoke({"messages": [HumanMessage(shop.prompt)]})
    shop.check()
    assert state["messages"][-1].text == llm.says
    # Once, for the words; it was offered no tools and saw no calls to stumble over.
    ((messages, tools),) = llm.asked
    assert not tools and not any(getattr(m, "tool_calls", None) for m in messages)
    assert TO_SAY in messages[0].text


def test_a_language_model_takes_over_in_doubt(trained: TrainedAgent, shop: Any) -> None:
    llm = ScriptedModel(asked=[])
    agent = trained.to_langchain(tools=shop.tools, llm=llm, defer_below=1.0)
    state = agent.invoke({"messages": [HumanMessage(shop.prompt)]})
    assert state["messages"][-1].text == llm.says
    assert len(llm.asked) == 1 and llm.asked[0][1]


def test_a_middleware_counts_what_it_saves(trained: TrainedAgent, shop: Any) -> None:
    llm = ScriptedModel(asked=[])
    middleware = AgentGymMiddleware(trained)
    native = adapter("langchain")
    tools = native.wrap_agent(trained, tools=shop.tools).nodes["tools"].bound
    agent = create_agent(
        llm, list(tools.tools_by_name.values()), middleware=[middleware]
    )
    state = agent.invoke({"messages": [HumanMessage(shop.prompt)]})
    shop.check()
    assert state["messages"][-1].text == llm.says
    savings = middleware.savings
    assert (savings.llm_calls, savings.worded, savings.deferred) == (1, 1, 0)
    assert savings.decided >= 1 and savings.tokens_saved > 0
    assert savings.llm_tokens == 105
    assert TO_SAY in llm.asked[0][0][0].text


def test_options_that_nothing_reads(trained: TrainedAgent, shop: Any) -> None:
    with pytest.raises(UsageError, match="agent_type works with executors only"):
        trained.to_langchain(tools=shop.tools, agent_type="structured_chat")
    with pytest.raises(UsageError, match="Invalid agent_type 'zen'"):
        trained.to_langchain(tools=shop.tools, style="executor", agent_type="zen")


# In --------------------------------------------------------------------------------


def test_an_agent_of_its_documentation_is_trained(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "train_my_own_agent.py"))
    example["write_tasks"](tmp_path / "tasks.jsonl")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "agentgym", "train", "--json"),
            *("--agent", "train_my_own_agent:build_agent", "--tasks", "tasks.jsonl"),
            *("--episodes", "2000", "--eval-every", "1000"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{EXAMPLES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "OPENAI_API_KEY": "never-used",
            "AGENTGYM_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "run live in training: op_11" in done.stderr
    result = json.loads(done.stdout)
    before = result["baseline"]["tool_reliability_interval"]
    after = result["metrics"]["tool_reliability_interval"]
    assert after[0] > before[1], (before, after)


@pytest.fixture
def travel(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_API_KEY", "never-used")
    monkeypatch.syspath_prepend(str(HERE))
    import travel_agent

    return travel_agent


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["travel", "warehouse"])
def test_sixty_tasks_make_an_agent_better(
    travel: Any, tmp_path: Path, kind: str, seed: int
) -> None:
    """Where names and descriptions say all, and where they say nothing."""
    from travel_tasks import write_tasks

    build = travel.build_agent
    if kind == "warehouse":
        example = runpy.run_path(str(EXAMPLES / "train_my_own_agent.py"))
        write_tasks, build = example["write_tasks"], example["build_agent"]
    write_tasks(tmp_path / "tasks.jsonl")
    result = agentgym.train(
        build,
        tasks=tmp_path / "tasks.jsonl",
        home=tmp_path / "home",
        episodes=2_000,
        seed=seed,
    )
    assert result.metrics.tool_reliability > result.baseline.tool_reliability


@pytest.mark.parametrize("given", ["agent", "factory", "name", "executor"])
def test_agents_come_in_and_go_out(
    travel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    from travel_tasks import write_tasks

    write_tasks(tmp_path / "tasks.jsonl")
    agent = {
        "agent": travel.build_agent(),
        "factory": travel.build_agent,
        "name": "travel_agent:build_agent",
        "executor": travel.build_executor,
    }[given]
    result = agentgym.train(
        agent,
        tasks=tmp_path / "tasks.jsonl",
        dry_run=["send_message"],
        home=tmp_path / "home",
        episodes=48,
        eval_tasks=4,
        heldout_tasks=4,
    )
    assert result.metrics.tasks == 4
    names = {tool.name for tool in result.agent.tools}
    assert names == {
        *("get_weather", "get_time", "convert_currency", "find_booking"),
        "send_message",
    }
    back = result.to_langchain(tools=[travel.get_weather, travel.get_time])
    assert type(back) is type(travel.build_agent())
    # Measured again without the agent: its tools then only pretend.
    assert result.agent.evaluate(tasks=2).tasks == 2


def test_a_factory_is_called_once_before_the_first_episode(
    travel: Any, tmp_path: Path
) -> None:
    from travel_tasks import write_tasks

    write_tasks(tmp_path / "tasks.jsonl")
    called: list[Any] = []

    def build() -> Any:
        called.append(travel.build_agent())
        return called[-1]

    job = resolve(
        TrainingConfig(
            scenario="task_file",
            tasks=str(tmp_path / "tasks.jsonl"),
            agent=name_of(build),
        )
    )
    job.make_rollout(print).close()
    assert len(called) == 1


def test_agents_of_a_factory_have_tools_of_their_own(tmp_path: Path) -> None:
    called: list[set[str]] = []

    def build() -> Any:
        mine: set[str] = set()
        called.append(mine)

        @tool
        def note(number: int) -> str:
            """Note a number."""
            mine.add(threading.current_thread().name)
            # Others get their turn, so that one agent cannot play all episodes.
            time.sleep(0.05)
            return f"{number} is noted"

        return create_agent(ScriptedModel(), [note])

    lines = [
        {
            "id": str(i),
            "messages": [{"role": "user", "content": f"Note the number {i}."}],
            "expected": [{"name": "note", "arguments": {"number": i}}],
        }
        for i in range(12)
    ]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    agentgym.train(
        build,
        tasks=tasks,
        home=tmp_path / "home",
        episodes=48,
        eval_tasks=2,
        heldout_tasks=2,
    )
    # Each agent that was made had its own tools called, not those of the first.
    assert sum(bool(mine) for mine in called) > 1


def test_an_agent_that_never_stops(travel: Any, tmp_path: Path) -> None:
    from travel_tasks import write_tasks

    class Again(AgentMiddleware):
        @hook_config(can_jump_to=["model"])
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"jump_to": "model"}

    write_tasks(tmp_path / "tasks.jsonl")
    with pytest.raises(FailureBudgetExceeded, match="did not end within 1 s"):
        agentgym.train(
            lambda: create_agent(ScriptedModel(), travel.TOOLS, middleware=[Again()]),
            tasks=tmp_path / "tasks.jsonl",
            home=tmp_path / "home",
            agent_timeout=1,
            episodes=400,
            eval_tasks=4,
            heldout_tasks=4,
        )


def test_two_tools_of_one_name_are_refused(travel: Any) -> None:
    executor = travel.build_executor()
    executor.tools = [*executor.tools, travel.get_time]
    with pytest.raises(UsageError, match="Two tools are named 'get_time'"):
        adapter("langchain").extract_tools(executor)


def test_two_tools_of_one_name_in_a_graph_of_a_factory(
    travel: Any, tmp_path: Path
) -> None:
    from travel_tasks import write_tasks

    @tool("get_time")
    def other(city: str) -> str:
        """Tell the time in another way."""
        return city

    write_tasks(tmp_path / "tasks.jsonl")
    with pytest.raises(UsageError, match="Two tools are named 'get_time'"):
        agentgym.train(
            lambda: create_agent(ScriptedModel(), [*travel.TOOLS, other]),
            tasks=tmp_path / "tasks.jsonl",
            home=tmp_path / "home",
        )
    # One that is given twice is one.
    twice = create_agent(ScriptedModel(), [*travel.TOOLS, travel.get_time])
    names = [found.name for found in adapter("langchain").extract_tools(twice)]
    assert names.count("get_time") == 1


def test_what_is_wrong_with_an_agent_is_said(tmp_path: Path, travel: Any) -> None:
    @tool
    def add(a, b):  # type: ignore[no-untyped-def]
        """Add two numbers."""
        return a + b

    native = adapter("langchain")
    with pytest.raises(UsageError, match="has no tools"):
        native.extract_tools(create_agent(ScriptedModel(), []))
    with pytest.raises(UsageError, match="'add': parameter 'a' has no type"):
        native.extract_tools(create_agent(ScriptedModel(), [add]))
    environment = _environment(native, travel.build_agent(), tmp_path)
    assert {t.name for t in environment.tool_list} >= {"get_weather", "find_booking"}
    environment.close()


def _environment(native: Any, agent: Any, folder: Path) -> Any:
    from travel_tasks import write_tasks

    write_tasks(folder / "tasks.jsonl")
    return native.create_environment(agent, folder / "tasks.jsonl")


def test_a_tool_that_raises_costs_its_call_only(travel: Any) -> None:
    tools = {
        t.name: t for t in adapter("langchain").extract_tools(travel.build_agent())
    }

    call = agentgym.core.tools.ToolCall("find_booking", {"number": "XX-1000"})
    result = ToolRunner().run(tools, call, None)
    assert result.failure == "tool_error" and "no such booking" in result.content


def test_an_async_tool_is_run(trained: TrainedAgent) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    agent = create_agent(ScriptedModel(), [add])
    (found,) = adapter("langchain").extract_tools(agent)
    assert found.function is not None and found.function(a=1, b=2) == 3
