"""Where the command `agentgym` starts.

Kept so small that `agentgym --version` costs no more than starting Python: typer and
the commands' own imports are loaded only when they are used.
"""

import os
import sys


def main() -> None:
    """Runs the command line and ends the process."""
    if sys.argv[1:2] == ["--version"]:
        from agentgym._version import __version__

        print(f"agentgym {__version__}")
        return
    # Before anything imports numpy. The matrices here are small, so a second BLAS
    # thread costs more time than it saves. The number of threads may also change the
    # last bits of a product, and so the weights that a seed gives.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal can't print must not end a training.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    from agentgym.cli.app import run

    sys.exit(run(sys.argv[1:]))
