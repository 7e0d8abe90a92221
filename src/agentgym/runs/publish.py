"""A run's output: a model with its result."""

from __future__ import annotations

import datetime

from agentgym.core.result import TrainingResult
from agentgym.engines.base import Job
from agentgym.policies.saved import SavedAgent, library_versions
from agentgym.store import Store
from agentgym.store.files import file_errors
from agentgym.training.loop import LoopResult

RESULT = "result.json"


def publish(store: Store, run_id: str, job: Job, trained: LoopResult) -> TrainingResult:
    """Saves the trained policy as the next version of its model, with its result.

    Raises:
        StoreError: The model can't be written. No part of it becomes visible.
    """
    config, scenario = job.config, job.scenario
    environment = scenario.create_environment()
    about = {
        "scenario": config.scenario,
        "system_prompt": scenario.system_prompt,
        "config": config.to_dict(),
        "metrics": trained.metrics.to_dict(),
        "baseline": trained.baseline.to_dict(),
        "baseline_tokens": trained.progress.baseline_tokens,
        "run_id": run_id,
        "versions": library_versions(),
        "created": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
    }
    agent = SavedAgent(trained.policy, environment.tool_list, about)
    environment.close()
    name = config.name or scenario.name
    with store.reserve_model(name, run_id=run_id) as draft:
        result = TrainingResult(
            run_id=run_id,
            model=draft.full_name,
            config=config.to_dict(),
            metrics=trained.metrics,
            baseline=trained.baseline,
            trained_model_path=str(draft.path),
            artifacts={"result": str(store.runs_dir / run_id / RESULT)},
            history=trained.progress.history,
        )
        agent.save(draft.folder)
        with file_errors(draft.folder):
            result.save(draft.folder / RESULT)
        draft.metadata.update(about, policy=config.policy)
    return result


def published(store: Store, run_id: str) -> TrainingResult | None:
    """What a run has published; None if it has to continue."""
    path = store.runs_dir / run_id / RESULT
    if path.exists():
        return TrainingResult.load(path)
    # Killed after its model became visible, before it could report that.
    for model in store.list_models():
        if model.run_id == run_id:
            path = store.get_model(model.full_name).path
            return TrainingResult.load(path / RESULT)
    return None
