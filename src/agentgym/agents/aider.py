"""Aider as the agent: fixes a repository, and the repository's tests judge the fix."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.agents.commands import run_command
from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import AgentContext, AgentFailed, AgentManager
from agentgym.agents.sandbox import run_sandboxed
from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import AssetError, UsageError
from agentgym.utils.files import file_lock, user_cache_dir

AIDER = "aider-chat==0.86.2"
_MODEL = "openai/agentgym"
_FLAGS = (
    "--yes-always --no-auto-commits --no-dirty-commits --no-gitignore --no-pretty"
    " --analytics-disable --no-check-update --no-show-release-notes"
    " --no-show-model-warnings --no-detect-urls --no-suggest-shell-commands"
    " --map-tokens 0"
).split()


@dataclass(frozen=True, slots=True)
class Repository:
    """The world of a task for Aider.

    Attributes:
        path: A git repository: a folder or URL, as for `git clone`.
        commit: The commit to check out.
        files: The files that Aider may change.
        test: The task is solved if this command succeeds.
    """

    path: str
    commit: str
    files: tuple[str, ...]
    test: tuple[str, ...] = (sys.executable, "-m", "pytest", "-q")


class AiderAgentManager(AgentManager):
    """Runs Aider on a clone of each task's repository; its tests judge the changes.

    A task's world is a `Repository`, and its first message is the user's request. Aider
    pins a hundred packages, so AgentGym creates a separate environment for it on first
    use.

    Attributes:
        diffs: Aider's changes as a `git diff`, by task id.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        python: Path | None = None,
        edit_format: str = "diff",
        test_seconds: float = 60.0,
        **options: Any,
    ) -> None:
        """Creates the manager.

        Args:
            gateway: See `AgentManager`.
            python: The Python interpreter of an environment with Aider; None creates
                one.
            edit_format: Aider's edit format.
            test_seconds: Time limit for a repository's tests.
            **options: See `AgentManager`.
        """
        super().__init__(gateway, **{"kind": "aider", "time_limit": 300.0, **options})
        if shutil.which("git") is None:
            raise UsageError("Aider needs git. Install git first.")
        self._python = python or aider_environment()
        self._edit_format = edit_format
        self._test_seconds = test_seconds
        self.diffs: dict[str, str] = {}

    def work(self, context: AgentContext) -> str | None:
        """See `AgentManager.work`."""
        repository = _repository(context.task.world)
        clone = context.folder / "repository"
        _git("clone", "--quiet", "--no-hardlinks", repository.path, str(clone))
        _git("-C", str(clone), "checkout", "--quiet", "--detach", repository.commit)
        about = context.folder / "model.json"
        limits = {"max_input_tokens": 32_768, "max_output_tokens": 8_192}
        about.write_text(
            json.dumps(
                {_MODEL: {**limits, "litellm_provider": "openai", "mode": "chat"}}
            )
        )
        run_command(
            [
                str(self._python),
                "-m",
                "aider",
                *_FLAGS,
                "--model",
                _MODEL,
                "--model-metadata-file",
                str(about),
                "--edit-format",
                self._edit_format,
                "--message",
                context.task.prompt,
                *repository.files,
            ],
            context,
            clone,
            self.time_limit,
            {"HOME": str(context.folder), "AIDER_CHECK_UPDATE": "false"},
        )
        return None

    def judge(self, context: AgentContext, trajectories: Sequence[Trajectory]) -> None:
        """Runs the repository's tests; their result is the reward of every step."""
        repository = _repository(context.task.world)
        clone = context.folder / "repository"
        self.diffs[context.task.id] = _git(
            "-C", str(clone), "diff", repository.commit, "--", *repository.files
        )
        outcome = run_sandboxed(repository.test, clone, seconds=self._test_seconds)
        for trajectory in trajectories:
            trajectory.success = outcome.code == 0
            trajectory.outcome = float(trajectory.success)
            for step in trajectory.steps:
                step.reward = trajectory.outcome


def aider_environment() -> Path:
    """Returns the Python interpreter of Aider's environment; creates it if needed.

    Raises:
        AssetError: The environment couldn't be created.
    """
    folder = user_cache_dir() / "environments" / AIDER.replace("==", "-")
    python = folder / "bin" / "python"
    done = folder / ".complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.parent / f"{folder.name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            for command in (
                [sys.executable, "-m", "venv", str(folder)],
                [str(python), "-m", "pip", "install", "--quiet", AIDER],
            ):
                made = subprocess.run(command, capture_output=True, check=False)
                if made.returncode != 0:
                    said = made.stderr.decode(errors="replace").split()
                    raise AssetError(
                        f"Couldn't create Aider's environment in {folder}:"
                        f" {' '.join(said)[-300:]}"
                    )
            done.touch()
    return python


def _repository(world: Any) -> Repository:
    if not isinstance(world, Repository):
        raise UsageError("A task for Aider must have a Repository as its world.")
    return world


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, check=False, text=True
    )
    if done.returncode != 0:
        raise AgentFailed(f"git {arguments[0]} failed: {done.stderr.strip()[:300]}")
    return done.stdout


def repository_task(identity: str, prompt: str, repository: Repository) -> Task:
    """Returns a task for Aider.

    Args:
        identity: The task's id.
        prompt: The request to Aider.
        repository: The repository to change.
    """
    message = {"role": "user", "content": prompt}
    return Task(identity, (message,), world=repository)
