"""Managers: agents of all kinds, good and bad, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import types
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym import Trainer
from agentgym.agents import commands
from agentgym.agents.backends import PolicyBackend
from agentgym.agents.callables import CallableAgentManager, load_agent
from agentgym.agents.commands import CommandAgentManager
from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import (
    AgentContext,
    AgentFailed,
    AgentManager,
    MixedAgentManager,
)
from agentgym.agents.rollout import AgentRollout
from agentgym.core.events import IterationDone
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import EpisodePlan, GroupPlan, Step, Trajectory
from agentgym.episodes.episode import AgentTask, EnvironmentPool
from agentgym.errors import FailureBudgetExceeded, UsageError
from agentgym.policies import registry
from agentgym.policies.base import Sampling
from agentgym.scenarios.base import Scenario
from agentgym.training.rollout import FORK_EXPLORATION, Rollout

COMMAND = f"{sys.executable} -S {Path(__file__).with_name('command_agent.py')}"


def post(url: str, key: str, body: Any) -> Any:
    request = urllib.request.Request(
        url,
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        {"authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def decide(task: AgentTask, base_url: str, key: str, messages: list[Any]) -> Any:
    """Asks for a decision, and appends it."""
    body = {"model": "m", "messages": messages, "tools": task.tools}
    answer = post(f"{base_url}/chat/completions", key, body)
    messages.append(answer["choices"][0]["message"])
    return messages[-1]


def loop(task: AgentTask, base_url: str, api_key: str) -> None:
    """A plain tool loop."""
    messages = list(task.messages)
    while True:
        message = decide(task, base_url, api_key, messages)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            content = task.call_tool(
                function["name"], json.loads(function["arguments"])
            )
            result = {"role": "tool", "tool_call_id": call["id"], "content": content}
            messages.append(result)
        if not message.get("tool_calls"):
            answer = task.reply(message["content"])
            if answer is None:
                return
            messages.append({"role": "user", "content": answer})


async def async_loop(task: AgentTask, base_url: str, api_key: str) -> str:
    """The same, awaited; what it says in the end is what it returns."""
    messages = list(task.messages)
    while True:
        message = await asyncio.to_thread(decide, task, base_url, api_key, messages)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            function = call["function"]
            content = await task.acall_tool(
                function["name"], json.loads(function["arguments"])
            )
            result = {"role": "tool", "tool_call_id": call["id"], "content": content}
            messages.append(result)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests, and other people, use the common one at the same time."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


@pytest.fixture(scope="module")
def tiny() -> Iterator[Any]:
    """The tiny scenario and its policy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "integration"))
        import tiny_policy
        import tiny_scenario

        yield tiny_scenario.Tiny, tiny_policy.TinyPolicy


@pytest.fixture
def scenario(tiny: Any) -> Scenario:
    made: Scenario = tiny[0]()
    return made


@pytest.fixture
def gates(tiny: Any) -> Iterator[Gateway]:
    """A gateway to the tiny policy."""
    sampling = Sampling(np.random.default_rng(0), 0.5)
    with Gateway(PolicyBackend(tiny[1](), sampling)) as made:
        yield made
        assert made.sessions == {}


@pytest.fixture
def environments(scenario: Scenario) -> Iterator[EnvironmentPool]:
    made = EnvironmentPool(scenario)
    yield made
    made.close()


@pytest.fixture
def tasks(scenario: Scenario) -> list[Task]:
    return list(scenario.tasks("train", 0, 12))


def leftovers() -> tuple[set[str], set[str]]:
    """Threads and temporary folders of agents."""
    return (
        {t.name for t in threading.enumerate() if t.name.startswith("agentgym-agent")},
        {p.name for p in Path(tempfile.gettempdir()).glob("agentgym-*")},
    )


# What works ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["loop", "async_loop", "command"])
def test_episodes_are_those_of_the_built_in_loop(
    tiny: Any,
    scenario: Scenario,
    environments: EnvironmentPool,
    tasks: list[Task],
    kind: str,
) -> None:
    policy = tiny[1]()
    rollout = Rollout(scenario, max_steps=10)
    expected = rollout.play(policy, tasks)
    rollout.close()
    before = leftovers()
    with Gateway(PolicyBackend(policy)) as gateway:
        manager: AgentManager
        if kind == "command":
            manager = CommandAgentManager(COMMAND, gateway, environments=environments)
        else:
            agent = loop if kind == "loop" else async_loop
            manager = CallableAgentManager(
                agent, gateway, environments=environments, kind="mine"
            )
        played = manager.deploy(tasks)
    assert [_told(t) for t in played] == [_told(t) for t in expected]
    assert {t.agent_kind for t in played} == {manager.kind}
    assert all(s.trace is not None for t in played for s in t.steps if s.calls)
    assert leftovers() == before


def _told(trajectory: Trajectory) -> Any:
    told = trajectory.to_dict()
    del told["agent_kind"]
    for step in told["steps"]:
        del step["latency"]
    return told


def test_siblings_are_repeated(
    tiny: Any, scenario: Scenario, tasks: list[Task]
) -> None:
    class Curious(tiny[1]):  # type: ignore[misc]
        explored: list[Any] = []

        def decide(self, requests: Any, sampling: Any = None) -> Any:
            self.explored += [
                (r.exploration, len(r.messages)) for r in requests if r.exploration
            ]
            return super().decide(requests, sampling)

    policy = Curious()
    rollout = AgentRollout(
        scenario, lambda gateway: CallableAgentManager(loop, gateway), max_steps=10
    )
    plans = [
        GroupPlan(task, 8, (1, 3), i, exploration=0.9) for i, task in enumerate(tasks)
    ]
    groups = rollout.groups(policy, plans)
    rollout.close()
    forked = [g for g in groups if len(g.trajectories) > 2]
    assert forked
    for group in groups:
        for trajectory in group.trajectories:
            assert trajectory.failure is None
            replayed = [step.replayed for step in trajectory.steps]
            assert replayed == sorted(replayed, reverse=True)
            assert all(s.trace is None for s in trajectory.steps if s.replayed)
            assert trajectory.mean_reward is not None
    # States of siblings have the same names, so that they can be compared.
    for group in forked:
        assert len({t.steps[0].state_key for t in group.trajectories}) == 1
    assert {share for share, _ in policy.explored} == {0.9, FORK_EXPLORATION}
    assert {n for share, n in policy.explored if share != 0.9} == {1}


def test_an_episode_that_goes_on_from_a_right_step(
    tiny: Any,
    scenario: Scenario,
    environments: EnvironmentPool,
    gates: Gateway,
    tasks: list[Task],
) -> None:
    manager = CallableAgentManager(loop, gates, environments=environments)
    task = tasks[0]
    for _ in range(40):
        (sibling,) = manager.deploy([task])
        if sibling.success:
            break
    assert sibling.success
    # As if its last step had been wrong.
    sibling.steps[-1].correct = False
    ((again,),) = manager.play([EpisodePlan(task, sibling.seed, sibling)])
    right = len(sibling.steps) - 1
    assert [s.replayed for s in again.steps[:right]] == [True] * right
    assert [s.calls[0].arguments for s in again.steps[:right]] == [
        s.calls[0].arguments for s in sibling.steps[:right]
    ]
    assert not again.steps[right].replayed


def test_an_agent_that_mends_what_it_is_told(
    gates: Gateway, environments: EnvironmentPool, tasks: list[Task]
) -> None:
    told = []

    def agent(task: AgentTask, base_url: str, api_key: str) -> str:
        goal = next(t.goal for t in tasks if t.id == task.id)
        name = ""
        while name != goal[0]:  # Until it is told the right tool.
            messages = list(task.messages)
            message = decide(task, base_url, api_key, messages)
            (call,) = message["tool_calls"]
            name = call["function"]["name"]
        told.append(json.loads(call["function"]["arguments"])["gate"])
        content = task.call_tool(call["function"]["name"], {"gate": goal[1]})
        messages.append(
            {"role": "tool", "tool_call_id": call["id"], "content": content}
        )
        return f"Dear user: {decide(task, base_url, api_key, messages)['content']}"

    manager = CallableAgentManager(agent, gates, environments=environments)
    called, said = manager.deploy(tasks[:1])[0].steps
    # The world saw what the agent made of it; the record has what was decided.
    goal = tasks[0].goal[1]
    assert [c.arguments for c in called.calls] == [{"gate": goal}]
    function = called.message["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"gate": told[0]}
    assert said.message["content"] == "It is done."
    own = Step({"content": "by itself"}, correct=True)
    sibling = Trajectory(tasks[0], [own, called, said])
    said.correct = False
    ((again,),) = manager.play([EpisodePlan(tasks[0], 0, sibling)])
    assert [s.replayed for s in again.steps] == [True, False]
    assert told[0] == told[1]


def test_several_kinds_in_one_group(
    gates: Gateway, environments: EnvironmentPool, tasks: list[Task]
) -> None:
    mixed = MixedAgentManager(
        [
            CallableAgentManager(loop, gates, environments=environments, kind="plain"),
            CallableAgentManager(
                async_loop, gates, environments=environments, kind="async"
            ),
            CommandAgentManager(
                COMMAND, gates, environments=environments, kind="program"
            ),
        ]
    )
    played = mixed.deploy(tasks[:6])
    assert [t.agent_kind for t in played] == ["plain", "async", "program"] * 2
    assert [t.task.id for t in played] == [t.id for t in tasks[:6]]
    assert all(t.failure is None and t.steps for t in played)


# Without a world -------------------------------------------------------------------


class Judging(CallableAgentManager):
    """Says itself what the work of its agents is worth."""

    def judge(self, context: AgentContext, trajectories: Any) -> None:
        text = (context.folder / "answer").read_text()
        for trajectory in trajectories:
            trajectory.success, trajectory.outcome = text == "good", 1.0


def test_agents_that_bring_their_own_tools(gateway: Gateway) -> None:
    folders = []

    def agent(task: AgentTask, base_url: str, api_key: str) -> None:
        messages = [{"role": "user", "content": "one"}]
        decide(task, base_url, api_key, messages)
        with pytest.raises(LookupError):
            task.call_tool("x", {})
        for text in ("two", "three"):
            decide(
                task, base_url, api_key, [*messages, {"role": "user", "content": text}]
            )

    class Mine(Judging):
        def work(self, context: AgentContext) -> str | None:
            folders.append(context.folder)
            (context.folder / "answer").write_text("good")
            return super().work(context)

    warned: list[str] = []
    manager = Mine(agent, gateway, on_warning=warned.append)
    task = Task("t", ({"role": "user", "content": "one"},))
    first, second = manager.deploy([task])
    assert [len(first.steps), len(second.steps)] == [2, 2]
    assert [s.replayed for s in second.steps] == [True, False]
    assert first.success and second.success
    assert first.steps[0].sampled is not None
    assert not folders[0].exists()
    assert len(warned) == 1 and "'branched'" in warned[0]
    manager.deploy([task])
    assert len(warned) == 1


# Faults ----------------------------------------------------------------------------


def raises(task: AgentTask, base_url: str, api_key: str) -> None:
    decide(task, base_url, api_key, list(task.messages))
    raise ValueError("I am lost")


def exits(task: AgentTask, base_url: str, api_key: str) -> None:
    sys.exit(3)


def ends_at_once(task: AgentTask, base_url: str, api_key: str) -> None:
    pass


HANGING = threading.Event()


@pytest.fixture(autouse=True)
def _no_agent_hangs_for_ever() -> Iterator[None]:
    HANGING.clear()
    yield
    HANGING.set()


def hangs(task: AgentTask, base_url: str, api_key: str) -> None:
    decide(task, base_url, api_key, list(task.messages))
    HANGING.wait(60)


async def hangs_awaiting(task: AgentTask, base_url: str, api_key: str) -> None:
    await asyncio.sleep(3600)


def floods(task: AgentTask, base_url: str, api_key: str) -> None:
    while True:
        decide(task, base_url, api_key, list(task.messages))


def sends_garbage(task: AgentTask, base_url: str, api_key: str) -> None:
    post(f"{base_url}/chat/completions", api_key, b"{garbage")


def takes_another_key(task: AgentTask, base_url: str, api_key: str) -> None:
    decide(task, base_url, "sk-" + "0" * 32, list(task.messages))


def wanders(task: AgentTask, base_url: str, api_key: str) -> None:
    decide(task, base_url.replace("/s/", "/s/0"), api_key, list(task.messages))


FAULTS: dict[Callable[..., Any], FailureKind] = {
    raises: FailureKind.AGENT_CRASH,
    exits: FailureKind.AGENT_CRASH,
    ends_at_once: FailureKind.NO_DECISION,
    hangs: FailureKind.AGENT_TIMEOUT,
    hangs_awaiting: FailureKind.AGENT_TIMEOUT,
    floods: FailureKind.AGENT_FLOOD,
    sends_garbage: FailureKind.AGENT_CRASH,
    takes_another_key: FailureKind.AGENT_CRASH,
    wanders: FailureKind.AGENT_CRASH,
}


@pytest.mark.parametrize("agent", FAULTS, ids=lambda agent: agent.__name__)
def test_a_fault_costs_its_own_trajectory(
    gates: Gateway,
    environments: EnvironmentPool,
    tasks: list[Task],
    agent: Any,
    eventually: Any,
) -> None:
    unlucky = tasks[1].id

    def sometimes(task: AgentTask, base_url: str, api_key: str) -> Any:
        return (agent if task.id == unlucky else loop)(task, base_url, api_key)

    before = leftovers()
    # Long enough for the others on a busy machine, too.
    time_limit = 3 if FAULTS[agent] is FailureKind.AGENT_TIMEOUT else 60
    manager = CallableAgentManager(
        sometimes,
        gates,
        environments=environments,
        time_limit=time_limit,
        max_requests=30,
    )
    played = manager.deploy(tasks[:4])
    assert [t.task.id for t in played] == [t.id for t in tasks[:4]]
    broken = played.pop(1)
    assert broken.failure is FAULTS[agent] and broken.failure_text
    assert broken.success is None and broken.mean_reward is None
    assert all(t.failure is None and t.success is not None for t in played)
    HANGING.set()
    eventually(lambda: leftovers() == before)


def test_agents_that_are_left_behind(
    gates: Gateway, environments: EnvironmentPool, tasks: list[Task], eventually: Any
) -> None:
    end = threading.Event()
    warned: list[str] = []

    def agent(task: AgentTask, base_url: str, api_key: str) -> None:
        end.wait(60)

    async def waits(task: AgentTask, base_url: str, api_key: str) -> None:
        await asyncio.to_thread(end.wait, 60)

    for stubborn in (agent, waits):
        end.clear()
        warned.clear()
        manager = CallableAgentManager(
            stubborn,
            gates,
            environments=environments,
            time_limit=0.1,
            on_warning=warned.append,
        )
        for _ in range(3):
            played = manager.deploy(tasks[:2])
            assert {t.failure for t in played} == {FailureKind.AGENT_TIMEOUT}
        if stubborn is agent:
            assert manager.left_behind == 6
            # Told of the first two, and when they had doubled.
            assert [text[0] for text in warned] == ["2", "4"]
        end.set()
        eventually(lambda manager=manager: manager.left_behind == 0)


@pytest.mark.parametrize("kind", ["plain", "awaiting"])
def test_a_program_ends_without_agents_that_hang(kind: str) -> None:
    code = """
import asyncio, sys, time
from agentgym.agents.backends import PolicyBackend
from agentgym.agents.callables import CallableAgentManager
from agentgym.agents.gateway import Gateway
from agentgym.core.task import Task

def plain(task, base_url, api_key):
    time.sleep(600)

async def awaiting(task, base_url, api_key):
    try:
        await asyncio.to_thread(time.sleep, 600)
    except asyncio.CancelledError:
        await asyncio.to_thread(time.sleep, 600)

with Gateway(PolicyBackend()) as gateway:
    manager = CallableAgentManager(
        globals()[sys.argv[1]], gateway, time_limit=0.1, on_warning=print
    )
    print(manager.deploy([Task("t", ())])[0].failure, manager.left_behind)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, kind], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.startswith("1 of the agents") and "agent_timeout 1" in done.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ("exit 3", FailureKind.AGENT_CRASH, "exit code 3: I give up"),
        ("exit 0", FailureKind.NO_DECISION, "before it had done"),
        ("killed", FailureKind.AGENT_CRASH, "signal 9"),
        ("noisy", FailureKind.AGENT_CRASH, "wrote more"),
    ],
)
def test_programs_that_fail(
    gates: Gateway,
    environments: EnvironmentPool,
    tasks: list[Task],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    kind: FailureKind,
    text: str,
) -> None:
    monkeypatch.setattr(commands, "MAX_OUTPUT", 1 << 16)
    manager = CommandAgentManager(
        f"{COMMAND} {arguments}", gates, environments=environments
    )
    before = leftovers()
    (broken,) = manager.deploy(tasks[:1])
    assert broken.failure is kind and text in broken.failure_text
    assert leftovers() == before


def test_a_program_is_killed_with_its_children(
    gates: Gateway,
    environments: EnvironmentPool,
    tasks: list[Task],
    tmp_path: Path,
    eventually: Any,
) -> None:
    manager = CommandAgentManager(
        [*COMMAND.split(), "hang", str(tmp_path)],
        gates,
        environments=environments,
        time_limit=5,
    )
    (broken,) = manager.deploy(tasks[:1])
    assert broken.failure is FailureKind.AGENT_TIMEOUT
    (child,) = (int(path.name) for path in tmp_path.iterdir() if path.is_file())
    eventually(lambda: not _alive(child))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_prompt_as_an_argument(gateway: Gateway, tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'said')!r}, 'w').write(sys.argv[1])"
    manager = CommandAgentManager([sys.executable, "-c", code, "{prompt}"], gateway)
    text = 'It\'s "mine"; $HOME {}'
    manager.deploy([Task("t", ({"role": "user", "content": text},))])
    assert (tmp_path / "said").read_text() == text


@pytest.mark.parametrize("command", ["", "no-such-program -x", "'"])
def test_commands_that_are_none(gateway: Gateway, command: str) -> None:
    with pytest.raises(UsageError):
        CommandAgentManager(command, gateway)


def test_too_many_failures(
    gates: Gateway, environments: EnvironmentPool, scenario: Scenario
) -> None:
    manager = CallableAgentManager(
        raises, gates, environments=environments, failure_budget=0.2, concurrency=2
    )
    tasks = scenario.tasks("train", 0, 100)
    with pytest.raises(FailureBudgetExceeded, match="5 of 5 agents failed.*I am lost"):
        manager.deploy(tasks)


def test_a_world_that_breaks(tiny: Any, gates: Gateway, tasks: list[Task]) -> None:
    environments = EnvironmentPool(tiny[0](crash=True))
    (broken,) = CallableAgentManager(loop, gates, environments=environments).deploy(
        tasks[:1]
    )
    environments.close()
    assert broken.failure is FailureKind.AGENT_CRASH
    assert "on fire" in broken.failure_text


def test_what_happens_after_the_end_does_not_matter(
    gates: Gateway, environments: EnvironmentPool, tasks: list[Task]
) -> None:
    said = []

    def agent(task: AgentTask, base_url: str, api_key: str) -> None:
        loop(task, base_url, api_key)
        said.append(decide(task, base_url, api_key, list(task.messages))["content"])
        said.append(task.call_tool("open_gate", {"gate": "A10"}))
        assert task.reply("Hello?") is None
        raise ValueError("too late")

    (played,) = CallableAgentManager(agent, gates, environments=environments).deploy(
        tasks[:1]
    )
    assert played.failure is None and played.success is not None
    assert said[0] == "The conversation is over." and "episode_over" in said[1]


def test_an_agent_that_fails_has_not_spoken(
    scenario: Scenario, gateway: Gateway, tasks: list[Task]
) -> None:
    environments = EnvironmentPool(scenario)

    def agent(task: AgentTask, base_url: str, api_key: str) -> None:
        said = decide(task, base_url, api_key, [{"role": "user", "content": "Hi"}])
        assert said["content"] == "Hi"
        raise ValueError("before it could say so")

    (broken,) = CallableAgentManager(agent, gateway, environments=environments).deploy(
        tasks[:1]
    )
    environments.close()
    assert broken.failure is FailureKind.AGENT_CRASH and broken.steps == []


def test_an_agent_with_a_mind_of_its_own(
    gates: Gateway, environments: EnvironmentPool, tasks: list[Task]
) -> None:
    def agent(task: AgentTask, base_url: str, api_key: str) -> str:
        decide(task, base_url, api_key, list(task.messages))
        tool, gate = next(t.goal for t in tasks if t.id == task.id)
        task.call_tool(tool, {"gate": gate})
        return "It is done."

    (played,) = CallableAgentManager(agent, gates, environments=environments).deploy(
        tasks[:1]
    )
    assert played.success
    own = played.steps[-1]
    assert own.message["content"] == "It is done." and own.trace is None


# Many ------------------------------------------------------------------------------


# In a process without coverage (see the Makefile): hundreds of threads begin here, and
# Python 3.11 may refuse one of them its trace function, which ends it before it ran.
@pytest.mark.untraced
@pytest.mark.slow
def test_chaos(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of 500 episodes, one in five of which goes wrong somehow."""
    quick = [a for a in FAULTS if a not in (hangs, hangs_awaiting, floods)]
    # Those that take their time: a few of each.
    slow = {40 * (i + 1): a for i, a in enumerate([hangs, hangs_awaiting, floods] * 3)}
    chosen = random.Random(0)
    lock = threading.Lock()
    fates: list[Any] = []

    def agent(task: AgentTask, base_url: str, api_key: str) -> Any:
        fate: Any = loop
        if task.id.startswith("train-"):
            with lock:
                number = len(fates)
                if number in slow or chosen.random() < 0.2:
                    fate = slow.get(number) or chosen.choice(quick)
                fates.append(fate)
        return fate(task, base_url, api_key)

    module: Any = types.ModuleType("chaos")
    module.agent = agent
    monkeypatch.setitem(sys.modules, "chaos", module)
    monkeypatch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")
    heard: list[Any] = []
    result = Trainer(home=tmp_path, listeners=[heard.append]).train(
        "tiny_scenario:Tiny",
        policy="tiny",
        agent="chaos:agent",
        episodes=500,
        eval_every=250,
        failure_budget=0.5,
        agent_concurrency=8,
        agent_timeout=5,
    )
    points = [event for event in heard if isinstance(event, IterationDone)]
    assert len(fates) == points[-1].episodes == result.metrics.episodes_completed
    assert len(fates) > 450
    # Every fault is one broken episode of its kind, and nothing else is broken.
    expected = Counter(str(FAULTS[fate]) for fate in fates if fate is not loop)
    assert sum(point.values["broken"] for point in points) == expected.total()
    assert sum(point.values["unrewarded"] for point in points) == expected.total()
    found: Counter[str] = Counter()
    for point in points:
        found.update(point.values["failures"])
    assert {kind: found[kind] for kind in expected} == expected
    assert expected.total() > 80 and len(expected) == 4
    # And it has learned from the others.
    assert result.metrics.tool_reliability > result.baseline.tool_reliability + 0.3
    assert not any("agent" in kind for kind in result.metrics.failures)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc")
def test_nothing_grows(gateway: Gateway, eventually: Any) -> None:
    """A thousand sessions, opened, asked and closed."""

    def one() -> None:
        session = gateway.open()
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        post(f"{gateway.base_url(session)}/chat/completions", session.key, body)
        gateway.close(session)

    def held() -> tuple[int, int, int]:
        status = Path("/proc/self/status").read_text()
        memory = next(x for x in status.splitlines() if x.startswith("VmRSS"))
        files = len(os.listdir("/proc/self/fd"))
        return files, threading.active_count(), int(memory.split()[1])

    for _ in range(200):
        one()
    before = held()
    for _ in range(1000):
        one()
    assert gateway.sessions == {}
    eventually(lambda: held()[0] <= before[0] + 2 and held()[1] <= before[1])
    assert held()[2] < before[2] + 8_000  # kB


# Agents by name --------------------------------------------------------------------


def test_agents_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "def agent(task, base_url, api_key): return 'x'\n"
        "def factory(model='m', temperature=0, verbose=False): return agent\n"
        "def wrong(a): pass\n"
        "def wrong_factory(): return wrong\n"
    )
    (tmp_path / "agent_with_a_bad_import.py").write_text("import nothing_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_agent("mine:agent")(1, 2, 3) == "x"
    assert load_agent("mine:factory")(1, 2, 3) == "x"
    for path, problem in {
        "mine": "Write it as module:function",
        "mine:nobody": "has no 'nobody'",
        "mine:wrong": "isn't an agent",
        "mine:wrong_factory": "isn't an agent",
        "agent_with_a_bad_import:x": "cannot be imported",
        "nowhere:x": "cannot be imported",
    }.items():
        with pytest.raises(UsageError, match=problem):
            load_agent(path)


def test_agents_fail_with_a_kind() -> None:
    assert AgentFailed("x").kind is FailureKind.AGENT_CRASH
