"""The example of an agent as a program; but it can be told to misbehave."""

import os
import runpy
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "command_agent.py"

match sys.argv[1:]:
    case ["exit", code]:
        print("I give up")
        sys.exit(int(code))
    case ["hang", folder]:
        # With a child that leaves the process group, and heeds no signal.
        code = (
            "import os, signal, time; os.setsid();"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            f"open({folder!r} + '/' + str(os.getpid()), 'w').close();"
            "time.sleep(600)"
        )
        os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
        time.sleep(600)
    case ["killed"]:
        os.kill(os.getpid(), 9)
    case ["noisy"]:
        while True:
            sys.stdout.write("x" * 65536)
    case _:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
