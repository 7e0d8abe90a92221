"""`Trainer`: what users hold. It hands a training to an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.control import Control
from agentgym.core.events import (
    Event,
    Listener,
    stream_events,
)
from agentgym.core.metrics import TrainingMetrics
from agentgym.core.result import TrainingResult
from agentgym.core.task import Split
from agentgym.errors import ConfigError
from agentgym.utils.objects import name_of


class Trainer:
    """Trains agents.

        result = Trainer().train("customer_support", episodes=5_000)
        result = Trainer(TrainingConfig(scenario="customer_support")).train()

    Args:
        config: Settings; `train` may override them.
        home: Where runs and models are kept; `$AGENTGYM_HOME` or `./.agentgym` if None.
        listeners: Hear every event.
        control: Pauses, stops and adjusts a training from another thread.

    Attributes:
        result: What the latest training of this trainer brought.
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
        """Trains, and returns when the model is measured and saved.

        Args:
            scenario: What to train on; by default what the config says.
            **settings: Fields of `TrainingConfig`; they win over the config.

        Raises:
            ConfigError: A setting is wrong, or nothing reads it.
            KeyboardInterrupt: Training was interrupted; `Trainer.resume` goes on.
            AgentGymError: Anything else that ends a training, in one line.
        """
        control = self.control or Control()
        return self._train(scenario, settings, self.listeners, control)

    def stream(self, scenario: str | None = None, **settings: Any) -> Iterator[Event]:
        """Trains in a thread of its own and yields the events.

        Closing the iterator early interrupts the run: it is saved and can be resumed.
        An error that ends the training is raised here, after its `RunFailed`.

        Arguments are those of `train`.
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
        """Goes on with a run whose process is gone, and ends it as if never broken off.

        A run that is finished already just gives its result.

        Args:
            run_id: Its id, the beginning of it, or "last".
            home: As for the trainer.
            listeners: As for the trainer.
            control: As for the trainer.

        Raises:
            RunNotFoundError: There is no such run.
            UsageError: The run is still under way somewhere, or its engine cannot go
                on with runs.
            FormatError: Its checkpoints cannot be read.
            KeyboardInterrupt: It was interrupted again.
        """
        from agentgym.engines import engine_of_run

        home = None if home is None else Path(home)
        return engine_of_run(run_id, home).resume(
            run_id,
            home=home,
            listeners=listeners,
            control=control or Control(),
        )

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
        """Measures a trained model on tasks of a scenario.

        Args:
            model: Name, version or folder; by default what this trainer trained last.
            split: Which tasks.
            tasks: How many; by default as many as at the end of its training.
            seed: Chooses the tasks; by default those of its training.
            scenario: By default the config's, else the one it was trained on.
            agent: Plays; by default the built-in loop. See `TrainedAgent.evaluate`.
            agent_command: The same as a command line.

        Raises:
            ConfigError: There is nothing to tell which model.
            ModelNotFoundError: There is no such model.
        """
        from agentgym.core.trained_agent import TrainedAgent

        if model is None and self.result is not None:
            model = Path(self.result.trained_model_path)
        if model is None:
            raise ConfigError("Which model? Train one first, or name one.")
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
        from agentgym.engines import get_engine

        config = self._merged(scenario, settings)
        self.result = get_engine(config.engine).train(
            config, home=self.home, listeners=listeners, control=control
        )
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
        reward: Judges tasks that do not say themselves what is right: gets a dict with
            `id`, `messages`, `calls` and `world`, returns a number from 0 to 1.
        dry_run: Tools that must not run: they answer what the task says, or
            `{"status": "ok"}`. "all" for all of them.
        sandbox: Gives a context manager that is entered around every episode.
        home: As for `Trainer`.
        **settings: Fields of `TrainingConfig`.

    Returns:
        What came out; `result.to_langchain(...)` and its siblings hand it back.
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
