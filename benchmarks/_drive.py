"""Held-out tasks of customer_support, played twice by one trained model.

    python benchmarks/_drive.py MODEL FRAMEWORK TASKS

Once the built-in loop plays. Once the framework does: the model is loaded, each task
gets an agent of `to_langchain()`, `to_autogen()` or `to_crewai()`, and that agent runs
in its framework's own loop, with tools that write into the task's database. Nothing of
training takes part in it. Prints both figures as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from agentgym import ScenarioRegistry, TrainedAgent
from agentgym.core.trajectory import Trajectory
from agentgym.episodes.episode import Episode
from agentgym.training.evaluation import Evaluation, evaluate
from agentgym.training.rollout import Rollout

Talk = Callable[[str], str]
"""Says something to an agent, and returns what it says to that."""


def main() -> None:
    """Plays."""
    model, framework, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    trained = TrainedAgent.load(model)
    scenario = ScenarioRegistry.load("customer_support")
    tasks = scenario.tasks("heldout", 1, count)
    rollout = Rollout(scenario, max_steps=10)
    built_in = evaluate(trained.policy, rollout, tasks)
    rollout.close()
    environment = scenario.create_environment()
    driven = []
    gave_up: list[str] = []
    for task in tasks:
        trajectory = Trajectory(task, seed=1)
        episode = Episode(environment, trajectory)
        tools = {
            tool.name: partial(_call, episode, tool.name) for tool in trained.tools
        }
        talk = TALKS[framework](trained, tools)
        said: str | None = str(task.messages[-1]["content"])
        try:
            while said is not None:
                said = episode.say(talk(said))
        except Exception as error:
            # CrewAI raises if an agent repeats itself. What was called counts.
            gave_up.append(f"{task.id}: {type(error).__name__}: {error}")
        episode.close()
        driven.append(trajectory)
    environment.close()
    found = {
        "built_in": built_in.metrics().to_dict(),
        "driven": Evaluation(driven).metrics().to_dict(),
        "gave_up": gave_up,
        "same": sum(
            _acts(ours) == _acts(theirs)
            for ours, theirs in zip(built_in.trajectories, driven, strict=True)
        ),
    }
    print(f"\n{json.dumps(found)}")


def _call(episode: Episode, name: str, **arguments: Any) -> Any:
    return json.loads(episode.call(name, arguments).content)


def _acts(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [
        (call.name, json.dumps(call.arguments, sort_keys=True))
        for step in trajectory.steps
        for call in step.calls
    ]


def _langchain(trained: TrainedAgent, tools: Any) -> Talk:
    agent = trained.to_langchain(tools=tools)
    state: dict[str, Any] = {"messages": []}

    def talk(content: str) -> str:
        message = {"role": "user", "content": content}
        state.update(agent.invoke({"messages": [*state["messages"], message]}))
        return str(state["messages"][-1].text)

    return talk


def _autogen(trained: TrainedAgent, tools: Any) -> Talk:
    agent = trained.to_autogen(tools=tools)

    def talk(content: str) -> str:
        result = asyncio.run(agent.run(task=content))
        return str(result.messages[-1].to_text())

    return talk


def _autogen_classic(trained: TrainedAgent, tools: Any) -> Talk:
    from autogen import ConversableAgent

    user = ConversableAgent(
        "user",
        llm_config=False,
        human_input_mode="NEVER",
        is_termination_msg=lambda message: not message.get("tool_calls"),
    )
    agent = trained.to_autogen(tools=tools, executor=user)

    def talk(content: str) -> str:
        user.initiate_chat(agent, message=content, clear_history=False, silent=True)
        return str(user.last_message(agent)["content"])

    return talk


def _crewai(trained: TrainedAgent, tools: Any) -> Talk:
    agent = trained.to_crewai(tools=tools)
    said: list[str] = []

    def talk(content: str) -> str:
        # An agent of CrewAI begins anew each time: it is told all that was said.
        said.append(content)
        return str(agent.kickoff("\n".join(said)).raw)

    return talk


TALKS: dict[str, Callable[[TrainedAgent, Any], Talk]] = {
    "langchain": _langchain,
    "autogen": _autogen,
    "autogen_classic": _autogen_classic,
    "crewai": _crewai,
}

if __name__ == "__main__":
    main()
