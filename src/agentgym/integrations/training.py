"""`agentgym.train`: an agent that somebody has goes in, and comes back better."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agentgym.core.result import TrainingResult
from agentgym.core.trainer import Trainer
from agentgym.integrations.given import name_of


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
