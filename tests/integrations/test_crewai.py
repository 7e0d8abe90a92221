"""CrewAI itself: agents and crews in a real world, and in training."""

# No annotations from the future: CrewAI could not make schemas of them.
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("crewai")

from crewai import Agent, Crew, Process, Task
from crewai.flow.flow import Flow, listen, start
from crewai.tools import tool
from errands import check_breaks_its_episodes, check_is_given_up, train

from agentgym import TrainedAgent
from agentgym.core.tools import ToolCall, ToolRunner
from agentgym.episodes.chat import MODEL, ChatModel
from agentgym.errors import FailureBudgetExceeded, UsageError
from agentgym.integrations.base import adapter
from agentgym.integrations.crewai import AgentGymLLM


def test_an_agent(trained: TrainedAgent, shop: Any) -> None:
    agent = trained.to_crewai(tools=shop.tools)
    assert agent.role == "Customer support"
    assert agent.kickoff(shop.prompt).raw
    shop.check()


@pytest.mark.parametrize("process", ["sequential", "hierarchical"])
def test_a_crew(trained: TrainedAgent, shop: Any, process: str) -> None:
    agent = trained.to_crewai(tools=shop.tools)
    if process == "hierarchical":
        extra: dict[str, Any] = {"manager_llm": agent.llm}
        task = Task(description=shop.prompt, expected_output="an answer")
    else:
        extra = {}
        task = Task(description=shop.prompt, expected_output="an answer", agent=agent)
    crew = Crew(agents=[agent], tasks=[task], process=Process(process), **extra)
    assert crew.kickoff().raw
    shop.check()


def test_a_flow(trained: TrainedAgent, shop: Any) -> None:
    class Service(Flow):  # type: ignore[type-arg]
        @start()
        def hear(self) -> str:
            return str(shop.prompt)

        @listen(hear)
        def serve(self, said: str) -> str:
            return str(trained.to_crewai(tools=shop.tools).kickoff(said).raw)

    assert Service().kickoff()
    shop.check()


# In --------------------------------------------------------------------------------

Topic = Literal["tides", "traffic", "pollen"]


@tool("get_report")
def get_report(topic: Topic) -> str:
    """Get the report on a topic."""
    return f"All is well with the {topic}."


@tool("call_taxi")
def call_taxi(number: int) -> str:
    """Call taxis, so many of them."""
    return f"{number} taxis are on their way."


def build(tools: Any = (get_report, call_taxi)) -> Agent:
    # Its own model, which is never asked in training.
    llm = AgentGymLLM(model=MODEL, chat=ChatModel(lambda request: pytest.fail("asked")))
    return Agent(
        role="Helper",
        goal="Help with {request}",
        backstory="You help.",
        llm=llm,
        tools=list(tools),
    )


def build_crew(description: str = "{request}") -> Crew:
    agent = build()
    task = Task(description=description, expected_output="an answer", agent=agent)
    return Crew(agents=[agent], tasks=[task])


@pytest.mark.parametrize("kind", ["agent", "crew", "factory"])
def test_agents_and_crews_are_trained(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = {"agent": build(), "crew": build_crew(), "factory": build_crew}[kind]
    result = train(agent, tmp_path, episodes=48, eval_tasks=3, heldout_tasks=3)
    assert result.metrics.tool_calls > 0
    assert not {"agent_crash", "agent_timeout"} & set(result.metrics.failures)
    assert isinstance(result.to_crewai(tools=[get_report, call_taxi]), Agent)
    # Standard output is for results.
    assert not capfd.readouterr().out
    if kind == "crew":
        # What the crew's author wrote is there again.
        assert agent.tasks[0].description == "{request}"
        assert agent.agents[0].goal == "Help with {request}"


def _never_content(**options: Any) -> Crew:
    """Does its task again and again; CrewAI gives up after three times, if not told."""
    agent = build()
    task = Task(
        description="{request}",
        expected_output="an answer",
        agent=agent,
        guardrail=lambda output: (False, "Do it again."),
        **options,
    )
    return Crew(agents=[agent], tasks=[task])


def _endless() -> Crew:
    return _never_content(guardrail_max_retries=1_000_000)


def test_a_crew_that_never_stops_in_training(tmp_path: Path) -> None:
    check_is_given_up(_endless, tmp_path, seconds=2)


def test_a_crew_that_its_own_limit_ends(tmp_path: Path) -> None:
    with pytest.raises(FailureBudgetExceeded, match="guardrail validation after 3"):
        train(_never_content, tmp_path, agent_timeout=120, episodes=400)


def test_a_crew_that_never_stops_when_it_drives(tmp_path: Path) -> None:
    result = train(build_crew, tmp_path, agent_timeout=5, episodes=16)
    check_breaks_its_episodes(result, _endless)


def test_what_is_wrong_with_an_agent_is_said() -> None:
    native = adapter("crewai")
    with pytest.raises(UsageError, match="has no tools"):
        native.extract_tools(build(tools=()))
    with pytest.raises(UsageError, match="Two tools are named 'get_report'"):
        native.extract_tools(build(tools=(get_report, get_report)))
    with pytest.raises(UsageError, match="has a placeholder for"):
        native.extract_tools(build_crew("Always the same."))

    @tool("add")
    def add(a, b):  # type: ignore[no-untyped-def]
        """Add two numbers."""
        return a + b

    with pytest.raises(UsageError, match="'add': parameter 'a' has no type"):
        native.extract_tools(build(tools=(add,)))


def test_a_tool_that_raises_costs_its_call_only() -> None:
    @tool("explode")
    def explode(count: int) -> str:
        """Explodes."""
        raise ValueError("boom")

    (found,) = adapter("crewai").extract_tools(build(tools=(explode,)))
    call = ToolCall("explode", {"count": 1})
    result = ToolRunner().run({found.name: found}, call, None)
    assert result.failure == "tool_error" and "boom" in result.content


def test_schemas_are_those_of_the_author() -> None:
    tools = {t.name: t for t in adapter("crewai").extract_tools(build())}
    assert tools["get_report"].properties["topic"]["enum"] == [
        *("tides", "traffic", "pollen")
    ]
    assert tools["call_taxi"].description == "Call taxis, so many of them."
