"""Runs agents concurrently, each with a private endpoint, and collects trajectories.

A manager runs one kind of agent. `deploy` gives each task to a separate agent and
returns their trajectories:

    with Gateway(PolicyBackend(policy)) as gateway:
        manager = CallableAgentManager(agent, gateway)
        trajectories = manager.deploy(tasks)

An agent that fails loses only its own trajectory, which records the failure. When
`deploy` returns, all endpoints, folders and processes are gone.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from agentgym.agents.gateway import Gateway
from agentgym.agents.sessions import MAX_REQUESTS, Session
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import EpisodePlan, Trajectory
from agentgym.episodes.continuity import Continuity
from agentgym.episodes.episode import AgentTask, EnvironmentPool, Episode
from agentgym.episodes.recorder import warnings_of
from agentgym.errors import AgentGymError, FailureBudgetExceeded

_FEWEST = 20
"""Minimum number of finished episodes before the failure budget applies."""


class AgentFailed(Exception):
    """An agent failed; the message says how.

    Attributes:
        kind: The kind of failure for its trajectory.
    """

    def __init__(self, text: str, kind: FailureKind = FailureKind.AGENT_CRASH) -> None:
        super().__init__(text)
        self.kind = kind


class AgentContext:
    """The context of one agent: its task, its endpoint and a folder.

    Attributes:
        task: The task with its tools.
        url: URL of the session.
        base_url: URL of the session's API.
        api_key: API key for both.
        stopping: Set when all agents must stop.
    """

    def __init__(
        self, task: AgentTask, url: str, api_key: str, stopping: threading.Event
    ) -> None:
        self.task = task
        self.url = url
        self.base_url = f"{url}/v1"
        self.api_key = api_key
        self.stopping = stopping
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """A private folder for this agent, created on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="agentgym-"))
        return self._folder

    def clear(self) -> None:
        """Removes the folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class AgentManager(ABC):
    """Runs agents of one kind.

    Attributes:
        kind: The kind of agent recorded in its trajectories.
        on_warning: Receives a warning, once per kind, if agents interrupt or rewrite
            their conversations.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        kind: str = "agent",
        environments: EnvironmentPool | None = None,
        concurrency: int = 8,
        time_limit: float = 120.0,
        failure_budget: float = 1.0,
        max_requests: int = MAX_REQUESTS,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """Creates the manager.

        Args:
            gateway: Provides the endpoints; start it before calling `deploy`.
            kind: A name for this kind of agent.
            environments: Environments for the tasks. Without them, agents bring their
                own tools, and `judge` rates their work.
            concurrency: Maximum number of concurrent agents.
            time_limit: Time limit of an agent, in seconds.
            failure_budget: Maximum share of agents that may fail.
            max_requests: Maximum number of requests of an agent.
            on_warning: See the attribute.
        """
        self.gateway = gateway
        self.kind = kind
        self.environments = environments
        self.concurrency = concurrency
        self.time_limit = time_limit
        self.failure_budget = failure_budget
        self.max_requests = max_requests
        self.on_warning = on_warning or (lambda text: None)
        self._warned: set[Continuity] = set()

    @abstractmethod
    def work(self, context: AgentContext) -> str | None:
        """Runs one agent to its end, within `time_limit`.

        Called in a separate thread. Everything that it starts must have ended when it
        returns or raises.

        Returns:
            The agent's final answer; None if its last decision is the answer.

        Raises:
            AgentFailed: The agent failed.
        """

    def judge(  # noqa: B027
        self, context: AgentContext, trajectories: Sequence[Trajectory]
    ) -> None:
        """Rates an agent's work if it runs without an environment.

        Override it to set `success`, `outcome` and the steps' rewards. None means not
        judged: the policy doesn't learn from such steps.
        """

    def deploy(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """Gives each task to an agent and waits for all of them.

        Returns:
            The trajectories in the order of the tasks: at least one per task, and
            several if an agent's conversation branched or restarted.

        Raises:
            FailureBudgetExceeded: Too many agents failed.
        """
        episodes = [EpisodePlan(task, i, number=i) for i, task in enumerate(tasks)]
        return [t for played in self.play(episodes) for t in played]

    def as_rollout_func(self) -> Callable[[list[Any], Any], dict[str, Any]]:
        """These agents as a replacement for TRL's generation; see `agents.trl`."""
        from agentgym.agents.trl import rollout_func

        return rollout_func(self.gateway, self.play)

    def play(
        self,
        episodes: Sequence[EpisodePlan],
        environments: EnvironmentPool | None = None,
    ) -> list[list[Trajectory]]:
        """Like `deploy`, for episodes with seeds and siblings; one list per episode.

        Args:
            episodes: The episodes to play. The endpoint repeats the sibling's answers,
                so an agent that behaves the same way reaches the same state.
            environments: Replaces the manager's environments.
        """
        environments = environments or self.environments
        stopping = threading.Event()
        breaks: Counter[Continuity] = Counter()
        with ThreadPoolExecutor(
            max_workers=max(1, min(self.concurrency, len(episodes))),
            thread_name_prefix="agentgym-agent",
        ) as pool:
            futures = [
                pool.submit(self._one, planned, environments, stopping, breaks)
                for planned in episodes
            ]
            try:
                self._await(futures)
            except BaseException:
                # Also after a second Ctrl-C: no agent may keep running.
                stopping.set()
                for future in futures:
                    future.cancel()
                raise
        self._warn(breaks)
        return [future.result() for future in futures]

    def _await(self, futures: Sequence[Future[list[Trajectory]]]) -> None:
        waiting = set(futures)
        ended = failed = 0
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                broken = [t for t in future.result() if t.failure is not None]
                ended += 1
                failed += bool(broken)
                if broken and failed > self.failure_budget * max(ended, _FEWEST):
                    raise FailureBudgetExceeded(
                        f"{failed} of {ended} agents failed; failure_budget allows"
                        f" {self.failure_budget:.0%}. Latest failure:"
                        f" {broken[0].failure_text}."
                    )

    def _one(
        self,
        planned: EpisodePlan,
        environments: EnvironmentPool | None,
        stopping: threading.Event,
        breaks: Counter[Continuity],
    ) -> list[Trajectory]:
        with contextlib.ExitStack() as stack:
            trajectory = Trajectory(
                planned.task, agent_kind=self.kind, seed=planned.seed
            )
            episode = None
            if environments is not None:
                environment = stack.enter_context(environments.lend())
                episode = Episode(environment, trajectory, planned.sibling)
                if trajectory.failure is not None:
                    return [trajectory]
                stack.callback(episode.close)
            session = self.gateway.open(
                episode, max_requests=self.max_requests, planned=planned
            )
            stack.callback(self.gateway.close, session)
            context = AgentContext(
                AgentTask(planned.task, episode, partial(self.gateway.ask, session)),
                self.gateway.url(session),
                session.key,
                stopping,
            )
            stack.callback(context.clear)
            answer, failed = None, None
            try:
                if not stopping.is_set():
                    answer = self.work(context)
            except AgentFailed as error:
                failed = error
            self.gateway.close(session)
            breaks.update(session.recorder.breaks)
            if episode is None:
                return self._collect(context, session, trajectory, failed)
            # An agent may do anything after its episode is over, as long as it ends:
            # one that doesn't slows training down.
            if failed is not None and (not episode.over or _endless(failed, session)):
                _mark(trajectory, failed, session)
                return [trajectory]
            episode.close(answer)
            if episode.problem is not None:
                raise episode.problem
            if trajectory.failure is None and not trajectory.steps:
                _mark(trajectory, _NOTHING_DONE, session)
            return [trajectory]

    def _collect(
        self,
        context: AgentContext,
        session: Session,
        broken: Trajectory,
        failed: AgentFailed | None,
    ) -> list[Trajectory]:
        found = session.recorder.trajectories(broken.task)
        if failed is not None or not found:
            broken.steps = [step for t in found for step in t.steps]
            _mark(broken, failed or _NOTHING_DONE, session)
            return [broken]
        for trajectory in found:
            trajectory.agent_kind, trajectory.seed = broken.agent_kind, broken.seed
        try:
            self.judge(context, found)
        except AgentGymError:
            raise
        except Exception as error:
            _mark(broken, AgentFailed(f"judging failed: {error!r}"), session)
            return [broken]
        return found

    def _warn(self, breaks: Counter[Continuity]) -> None:
        new = Counter({k: n for k, n in breaks.items() if k not in self._warned})
        self._warned |= set(new)
        for text in warnings_of(new):
            self.on_warning(text)


_NOTHING_DONE = AgentFailed(
    "the agent ended before it had done or said anything", FailureKind.NO_DECISION
)


def _endless(failed: AgentFailed, session: Session) -> bool:
    """Whether the agent timed out or made too many requests."""
    return failed.kind is FailureKind.AGENT_TIMEOUT or bool(session.refused["flood"])


def _mark(trajectory: Trajectory, failed: AgentFailed, session: Session) -> None:
    kind, text = failed.kind, str(failed)
    # The error that the agent met is closer to the cause than its failure.
    if session.refused["upstream_error"]:
        kind, text = FailureKind.UPSTREAM_ERROR, f"{text}, after the server failed"
    elif session.refused["flood"]:
        kind, text = FailureKind.AGENT_FLOOD, f"{text}, after too many requests"
    elif refused := ", ".join(sorted(session.refused)):
        text = f"{text} (refused: {refused})"
    trajectory.failure, trajectory.failure_text = kind, text


class MixedAgentManager:
    """Several kinds of agents in one group: siblings take turns among the kinds."""

    def __init__(self, managers: Sequence[AgentManager]) -> None:
        self.managers = list(managers)

    def play(
        self,
        episodes: Sequence[EpisodePlan],
        environments: EnvironmentPool | None = None,
    ) -> list[list[Trajectory]]:
        """See `AgentManager.play`; all kinds run at the same time.

        An episode that repeats a sibling is played by an agent of the same kind.
        """
        kinds = {manager.kind: i for i, manager in enumerate(self.managers)}
        count = len(self.managers)
        which = [
            kinds.get(e.sibling.agent_kind if e.sibling else "", e.number % count)
            for e in episodes
        ]
        shares = [
            [e for e, w in zip(episodes, which, strict=True) if w == i]
            for i in range(count)
        ]
        with ThreadPoolExecutor(count) as pool:
            played = [
                iter(part)
                for part in pool.map(
                    lambda manager, share: manager.play(share, environments),
                    self.managers,
                    shares,
                )
            ]
        return [next(played[w]) for w in which]

    def deploy(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """See `AgentManager.deploy`."""
        episodes = [EpisodePlan(task, i, number=i) for i, task in enumerate(tasks)]
        return [t for played in self.play(episodes) for t in played]
