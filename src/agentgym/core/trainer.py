"""`Trainer` and `train`: training from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.control import Control
from agentgym.core.events import Event, Listener, stream_events
from agentgym.core.metrics import TrainingMetrics
from agentgym.core.task import Split
from agentgym.core.trained_agent import TrainedAgent, TrainingResult
from agentgym.errors import ConfigError
from agentgym.runs import lifecycle
from agentgym.runs.launchers.here import Here
from agentgym.runs.resolve import resolve
from agentgym.store import Store
from agentgym.utils.objects import name_of


class Trainer:
    """Trains agents.

        result = Trainer().train("customer_support", episodes=5_000)
        result = Trainer(TrainingConfig(scenario="customer_support")).train()

    Args:
        config: Settings; `train` can override them.
        home: Where runs and models are kept. Default: `$AGENTGYM_HOME` or
            `./.agentgym`.
        listeners: Called with every event.
        control: Pauses, stops and adjusts a training from another thread.

    Attributes:
        result: The result of this trainer's latest training.
    """

    def __init__(
        self,
        config: TrainingConfig | None = None,
        *,
        home: Path | str | None = None,
        listeners: Sequence[Listener] = (),
        control: Control | None = None,
    ) -> None:
        self.config = config
        self.home = None if home is None else Path(home)
        self.listeners = list(listeners)
        self.control = control
        self.result: TrainingResult | None = None

    def train(self, scenario: str | None = None, **settings: Any) -> TrainingResult:
        """Trains, and returns once the model is evaluated and saved.

        Args:
            scenario: What to train on. Default: the config's scenario.
            **settings: Fields of `TrainingConfig`; they win over the config.

        Raises:
            ConfigError: A setting is invalid or unknown.
            KeyboardInterrupt: Training was interrupted; `Trainer.resume` continues it.
            AgentGymError: Any other error that ends a training, in one line.
        """
        control = self.control or Control()
        return self._train(scenario, settings, self.listeners, control)

    def stream(self, scenario: str | None = None, **settings: Any) -> Iterator[Event]:
        """Trains in a background thread and yields the events.

        Closing the iterator early interrupts the run: it is saved and can be resumed.
        An error that ends the training is raised here, after its `RunFailed`.

        Takes the arguments of `train`.
        """
        control = self.control or Control()

        def work(listener: Listener) -> None:
            self._train(scenario, settings, [*self.listeners, listener], control)

        return stream_events(work, control.interrupt)

    @classmethod
    def resume(
        cls,
        run_id: str,
        home: Path | str | None = None,
        listeners: Sequence[Listener] = (),
        control: Control | None = None,
    ) -> TrainingResult:
        """Continues a run and returns its result, as if it had never been interrupted.

        `agentgym runs resume` follows the same rules: an interrupted or failed run
        continues here from its last checkpoint, a paused one continues in its own
        process, and a finished one returns its result again.

        Args:
            run_id: Its id, the first characters of it, or "last".
            home: As for the trainer.
            listeners: As for the trainer.
            control: As for the trainer; unused if the run continues elsewhere.

        Raises:
            RunNotFoundError: No run has that id.
            UsageError: The run is running, its engine can't resume runs, or it didn't
                finish elsewhere.
            FormatError: Its checkpoints can't be read.
            KeyboardInterrupt: It was interrupted again.
        """
        with Store(None if home is None else Path(home)) as store:
            result = lifecycle.resume(store, run_id, Here(listeners, control))
            if result is None:
                result = lifecycle.outcome(store, run_id, listeners)
        return TrainingResult.of(result)

    def evaluate(
        self,
        model: str | Path | None = None,
        *,
        split: Split = "heldout",
        tasks: int | None = None,
        seed: int | None = None,
        scenario: str | None = None,
        agent: str | None = None,
        agent_command: str | None = None,
    ) -> TrainingMetrics:
        """Evaluates a trained model on tasks of a scenario.

        Args:
            model: Name, version or folder. Default: this trainer's latest model.
            split: Which tasks.
            tasks: How many. Default: as many as at the end of its training.
            seed: Chooses the tasks. Default: the seed of its training.
            scenario: Default: the config's, else the one it was trained on.
            agent: Your own agent; see `TrainedAgent.evaluate`.
            agent_command: Your own agent as a command line.

        Raises:
            ConfigError: No model is named, and none was trained.
            ModelNotFoundError: The model doesn't exist.
        """
        if model is None and self.result is not None:
            model = Path(self.result.trained_model_path)
        if model is None:
            raise ConfigError("No model to evaluate. Name one, or train one first.")
        trained = TrainedAgent.load(model, home=self.home)
        if scenario is None and self.config is not None:
            scenario = self.config.scenario
        return trained.evaluate(
            scenario,
            split=split,
            tasks=tasks,
            seed=seed,
            agent=agent,
            agent_command=agent_command,
        )

    def _train(
        self,
        scenario: str | None,
        settings: dict[str, Any],
        listeners: Sequence[Listener],
        control: Control,
    ) -> TrainingResult:
        # Before the home is created: invalid settings leave nothing behind.
        job = resolve(self._merged(scenario, settings))
        job.fetch()
        with Store(self.home) as store:
            result = lifecycle.submit(store, job, Here(listeners, control))
        self.result = TrainingResult.of(result)
        return self.result

    def _merged(self, scenario: str | None, settings: dict[str, Any]) -> TrainingConfig:
        given = settings if scenario is None else {**settings, "scenario": scenario}
        if self.config is not None:
            before = self.config
            given = {n: getattr(before, n) for n in before.model_fields_set} | given
        return TrainingConfig.from_dict(given)


def train(
    agent: Any,
    *,
    tasks: Path | str,
    reward: Callable[[dict[str, Any]], float] | str | None = None,
    dry_run: Iterable[str] | str = (),
    sandbox: Callable[[], Any] | str | None = None,
    home: Path | str | None = None,
    **settings: Any,
) -> TrainingResult:
    """Trains an existing agent on a file of tasks, with its own tools, live.

    Args:
        agent: Of LangChain, AutoGen or CrewAI: an agent, a team, a crew, a function
            without arguments that makes one, or the name of any of these as
            `module:name`.
        tasks: A file of JSON lines; see `docs/task-files.md`. Lines need no tools.
        reward: Judges tasks that don't declare what is right: gets a dict with `id`,
            `messages`, `calls` and `world`, and returns a number from 0 to 1.
        dry_run: Tools that must not run: they return what the task says, or
            `{"status": "ok"}`. "all" for all of them.
        sandbox: Returns a context manager that is entered around every episode.
        home: As for `Trainer`.
        **settings: Fields of `TrainingConfig`.

    Returns:
        The result; `result.to_langchain(...)` and similar methods return the agent.
    """
    names = dry_run if isinstance(dry_run, str) else ",".join(dry_run)
    options = {
        "agent": name_of(agent),
        "tasks": str(Path(tasks).absolute()),
        "dry_run": names,
        "reward": name_of(reward) if reward is not None else "",
        "sandbox": name_of(sandbox) if sandbox is not None else "",
    }
    options = {name: value for name, value in options.items() if value}
    return Trainer(home=home).train("task_file", **options, **settings)
