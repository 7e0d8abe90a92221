"""Which ports may be taken, and by whom."""

from __future__ import annotations

import socket

import pytest

from agentgym.errors import ServingError, UsageError
from agentgym.serving import server


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_needs_no_key(host: str) -> None:
    with server.bind(host, 0, guarded=False) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1"])
def test_other_interfaces_need_a_key(host: str) -> None:
    with pytest.raises(UsageError, match="Set AGENTGYM_API_KEY or --api-key"):
        server.bind(host, 0, guarded=False)


def test_a_port_in_use() -> None:
    with server.bind("127.0.0.1", 0, guarded=False) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ServingError, match=f"Port {port} on 127.0.0.1 is in use"):
            server.bind("127.0.0.1", port, guarded=False)


def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(ServingError, match="Can't listen on 192.0.2.1"):
        server.bind("192.0.2.1", 0, guarded=True)
    with pytest.raises(ServingError, match="not found on this machine"):
        server.bind("no such host", 0, guarded=True)


def test_a_port_that_needs_more_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: object, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refused)
    with pytest.raises(ServingError, match="Permission denied for port"):
        server.bind("127.0.0.1", 80, guarded=False)
