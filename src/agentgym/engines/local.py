"""The local engine: trains in this process and keeps everything in the store."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from agentgym.core.components import COMPONENTS
from agentgym.core.config import TrainingConfig
from agentgym.core.control import Control, deferred_interrupt
from agentgym.core.events import (
    INTERRUPTED,
    EventBus,
    Listener,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    Warned,
)
from agentgym.core.result import TrainingResult
from agentgym.engines import get_engine
from agentgym.engines.base import Engine
from agentgym.errors import (
    AgentGymError,
    ConfigError,
    MissingExtraError,
    ScenarioError,
    UsageError,
)
from agentgym.policies.base import Policy
from agentgym.policies.registry import create_policy, policy_class, policy_options
from agentgym.policies.saved import SavedAgent, library_versions
from agentgym.runs.recorder import RunRecorder
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.store import Store
from agentgym.store.files import file_errors
from agentgym.store.rows import split_reference
from agentgym.training.checkpoint import Checkpoint, CheckpointFolder
from agentgym.training.loop import LoopResult, run_training
from agentgym.training.rollout import Rollout
from agentgym.utils.files import file_lock

RESULT = "result.json"


class LocalEngine(Engine):
    """Trains in this process."""

    name = "local"

    def train(
        self,
        config: TrainingConfig,
        *,
        home: Path | None,
        listeners: Sequence[Listener],
        control: Control,
    ) -> TrainingResult:
        """Carries out a new run; see `Engine.train`."""
        scenario, config = resolve(config)
        with Store(home) as store:
            policy = create_policy(config.policy, config.seed, policy_options(config))
            run = Run.begin(store, config, scenario)
            with run.exclusive():
                return run.carry_out(
                    run.loop(policy, None, control), listeners, control
                )

    def resume(
        self,
        run_id: str,
        *,
        home: Path | None,
        listeners: Sequence[Listener],
        control: Control,
    ) -> TrainingResult:
        """Goes on with a run whose process is gone; see `Engine.resume`."""
        with Store(home) as store:
            row = store.get_run(run_id)
            config = TrainingConfig.from_dict(row.config)
            scenario = _load_scenario(config)
            run = Run(store, row.id, config, scenario)
            with run.exclusive():
                if (result := run.published()) is not None:
                    run.finish(result, listeners)
                    return result
                policy = create_policy(
                    config.policy, config.seed, policy_options(config)
                )
                start, warning = run.checkpoints.load()
                # Orders that were meant for the process before.
                store.take_commands(row.id)
                at = None if start is None else start.progress.iteration
                loop = run.loop(policy, start, control)
                return run.carry_out(loop, listeners, control, at, warning)


def resolve(config: TrainingConfig) -> tuple[Scenario, TrainingConfig]:
    """Loads what the settings name, and fills in the defaults.

    Raises:
        ScenarioNotFoundError: There is no such scenario.
        PolicyNotFoundError: There is no such policy.
        ConfigError: A setting is wrong, or nothing reads it.
    """
    scenario = ScenarioRegistry.load(config.scenario)
    engine = get_engine(config.engine)
    name = config.policy
    if "policy" not in config.model_fields_set:
        name = engine.training_defaults.get("policy", name)
    policy = policy_class(name)
    defaults = scenario.training_defaults()
    if policy.language_model:
        defaults = scenario.language_model_defaults()
    resolved = config.resolve(
        defaults,
        policy.training_defaults,
        scenario.options,
        engine.training_defaults,
        policy.policy_options,
    )
    engine.check(resolved)
    trainable_components(resolved, scenario)
    if split_reference(resolved.name or "")[1] is not None:
        raise ConfigError(
            f"name: should leave the version out, got '{resolved.name}'; versions are "
            "counted up by themselves."
        )
    if resolved.options_of(scenario.options) or resolved.agent_count:
        scenario = _load_scenario(resolved)
    return scenario, resolved


def _load_scenario(config: TrainingConfig) -> Scenario:
    """The scenario with its options, and with what the agent brings along."""
    tools = _agents().check_agent(config) if config.agent_count else ()
    options = config.options_of(ScenarioRegistry.find(config.scenario).options)
    return ScenarioRegistry.load(config.scenario, agent_tools=tools, **options)


def trainable_components(config: TrainingConfig, scenario: Scenario) -> frozenset[str]:
    """The components that learn: the user's choice, else what the scenario declares.

    Raises:
        ScenarioError: The scenario declares a component that no agent has, or none.
    """
    if config.components is not None:
        return frozenset(config.components)
    declared = scenario.define_trainable_components()
    unknown = sorted(set(declared) - set(COMPONENTS))
    if unknown or not any(declared.values()):
        problem = f"unknown: {', '.join(unknown)}" if unknown else "none learns"
        raise ScenarioError(
            f"Scenario '{scenario.name}': define_trainable_components is wrong "
            f"({problem}). Components: {', '.join(COMPONENTS)}."
        )
    return frozenset(name for name, learns in declared.items() if learns)


class Run:
    """One run and the folder it lives in; for all engines of this machine."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        config: TrainingConfig,
        scenario: Scenario,
    ) -> None:
        self.id = run_id
        self._store = store
        self._config = config
        self._scenario = scenario
        self._folder = store.runs_dir / run_id
        self.checkpoints = CheckpointFolder(store.artifacts.within(f"runs/{run_id}"))

    @classmethod
    def begin(cls, store: Store, config: TrainingConfig, scenario: Scenario) -> Run:
        """A new run, entered into the store."""
        run = cls(store, secrets.token_hex(4), config, scenario)
        store.create_run(
            run.id,
            scenario=config.scenario,
            policy=config.policy,
            engine=config.engine,
            seed=config.seed,
            config=config.to_dict(),
            targets=scenario.success_criteria(),
        )
        return run

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keeps other processes from carrying out the same run."""
        with contextlib.ExitStack() as stack:
            with file_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                try:
                    stack.enter_context(file_lock(self._folder / "lock", timeout=0))
                except TimeoutError:
                    raise UsageError(
                        f"Run '{self.id}' is under way in another process. Wait for "
                        "it, or stop that one first."
                    ) from None
            yield

    def loop(
        self, policy: Policy, start: Checkpoint | None, control: Control
    ) -> Callable[[Rollout, EventBus], LoopResult]:
        """AgentGym's own loop; see `run_training`."""
        return lambda rollout, events: run_training(
            self._config,
            rollout,
            policy,
            trainable_components(self._config, self._scenario),
            checkpoints=self.checkpoints,
            start=start,
            events=events,
            control=control,
        )

    def carry_out(
        self,
        train: Callable[[Rollout, EventBus], LoopResult],
        listeners: Sequence[Listener],
        control: Control,
        resumed_from: int | None = None,
        warning: str = "",
    ) -> TrainingResult:
        """Trains, measures and publishes.

        Args:
            train: Trains with what plays, and tells what happens.
            listeners: Hear every event.
            control: Orders for the run.
            resumed_from: Iteration that the run goes on from; None if it is new.
            warning: What a person should know before it starts.
        """
        with self._recorded(listeners) as events:
            rollout = make_rollout(
                self._config, self._scenario, lambda text: events.emit(Warned(text))
            )
            try:
                with self._commands(control), deferred_interrupt(control):
                    config = self._config.to_dict()
                    events.emit(RunStarted(self.id, config, resumed_from))
                    if warning:
                        events.emit(Warned(warning))
                    result = self._publish(train(rollout, events))
                    self._save(result)
                    events.emit(RunFinished(result.to_dict()))
                    with file_errors(self._folder):
                        self.checkpoints.clear()
            except KeyboardInterrupt:
                with contextlib.suppress(AgentGymError):
                    events.emit(RunStopped(INTERRUPTED))
                raise
            except Exception as error:
                # What went wrong first is what the caller needs to hear.
                with contextlib.suppress(AgentGymError):
                    events.emit(RunFailed(_one_line(error)))
                raise
            finally:
                rollout.close()
        return result

    def published(self) -> TrainingResult | None:
        """What the run has brought already; None if it must go on."""
        path = self._folder / RESULT
        if path.exists():
            return TrainingResult.load(path)
        # Killed after its model was there for all to see, before it could say so.
        for model in self._store.list_models():
            if model.run_id == self.id:
                path = self._store.get_model(model.full_name).path
                return TrainingResult.load(path / RESULT)
        return None

    def finish(self, result: TrainingResult, listeners: Sequence[Listener]) -> None:
        """Says that the run is finished, if that is not known yet."""
        if self._store.get_run(self.id).status not in ("finished", "stopped"):
            self._save(result)
            with self._recorded(()) as events:
                events.emit(RunFinished(result.to_dict()))
        events = EventBus()
        for listener in listeners:
            events.subscribe(listener)
        events.emit(RunFinished(result.to_dict()))

    def _publish(self, trained: LoopResult) -> TrainingResult:
        config, scenario = self._config, self._scenario
        environment = scenario.create_environment()
        about = {
            "scenario": config.scenario,
            "system_prompt": scenario.system_prompt,
            "config": config.to_dict(),
            "metrics": trained.metrics.to_dict(),
            "baseline": trained.baseline.to_dict(),
            "baseline_tokens": trained.progress.baseline_tokens,
            "run_id": self.id,
            "versions": library_versions(),
            "created": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
        }
        agent = SavedAgent(trained.policy, environment.tool_list, about)
        environment.close()
        name = config.name or scenario.name
        with self._store.reserve_model(name, run_id=self.id) as draft:
            result = TrainingResult(
                run_id=self.id,
                model=draft.full_name,
                config=config.to_dict(),
                metrics=trained.metrics,
                baseline=trained.baseline,
                trained_model_path=str(draft.path),
                artifacts={"result": str(self._folder / RESULT)},
                history=trained.progress.history,
            )
            agent.save(draft.folder)
            with file_errors(draft.folder):
                result.save(draft.folder / RESULT)
            draft.metadata.update(about, policy=config.policy)
        return result

    def _save(self, result: TrainingResult) -> None:
        with file_errors(self._folder):
            result.save(self._folder / RESULT)

    @contextlib.contextmanager
    def _recorded(self, listeners: Sequence[Listener]) -> Iterator[EventBus]:
        """A bus that the store and the listeners hear, while the run is ours."""
        events = EventBus()
        with RunRecorder(self._store, self.id) as recorder:
            events.subscribe(recorder, essential=True)
            for listener in listeners:
                events.subscribe(listener)
            yield events

    @contextlib.contextmanager
    def _commands(self, control: Control) -> Iterator[None]:
        """Lets the control hear what other processes ask of this run."""
        own = control.source

        def source() -> list[tuple[str, dict[str, Any]]]:
            others = self._store.take_commands(self.id)
            return [*own(), *others] if own is not None else others

        control.source = source
        try:
            yield
        finally:
            control.source = own


def make_rollout(
    config: TrainingConfig, scenario: Scenario, on_warning: Callable[[str], None]
) -> Rollout:
    """The built-in loop, or the agent that the settings name."""
    if config.agent_count:
        rollout: Rollout = _agents().rollout_of(config, scenario, on_warning)
        return rollout
    return Rollout(
        scenario, max_steps=config.max_steps, tool_timeout=config.tool_timeout
    )


def _agents() -> ModuleType:
    try:
        from agentgym.agents import rollout
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtraError("Training an agent of yours", "api") from None
    return rollout


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, AgentGymError) else f"{type(error).__name__}: {text}"
    )
