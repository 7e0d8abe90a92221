"""Refuses connections beyond this machine; Python imports it where it is on the path.

Whatever is tried is appended to the file that `AGENTGYM_TRIED` names, so that also
programs which swallow the error, or which another program starts, are found out.
"""

import os
import sys

_SENDING = ("socket.connect", "socket.sendto", "socket.sendmsg")
_LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0")


def _refuse(event, arguments):
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in _SENDING and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    file = os.environ.get("AGENTGYM_TRIED")
    if file and host and not str(host).startswith(_LOOPBACK):
        with open(file, "a", encoding="utf-8") as tried:
            tried.write(f"{host}\n")
        raise OSError(f"no network in tests: {host}")


sys.addaudithook(_refuse)
