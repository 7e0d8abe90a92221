"""Runs that live in a process of their own, which outlives the one that starts it."""

from __future__ import annotations

import subprocess
import sys

from agentgym.engines.base import Job
from agentgym.store import Store
from agentgym.store.files import file_errors

OUTPUT = "output.log"
"""What the process prints, in the run's folder."""


class Child:
    """Starts `agentgym runs resume RUN` in its own session.

    The child finds modules in the current folder, as this process does. It resolves
    the run's settings itself: objects of this process can't reach it.
    """

    def launch(
        self, store: Store, run_id: str, job: Job | None = None
    ) -> subprocess.Popen[bytes]:
        """See `Launcher.launch`.

        Raises:
            StoreError: The run's folder can't be written.
        """
        folder = store.runs_dir / run_id
        command = ["runs", "resume", run_id, "--quiet", "--home", str(store.home)]
        with file_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / OUTPUT).open("ab") as output:
                return subprocess.Popen(
                    [sys.executable, "-m", "agentgym", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
