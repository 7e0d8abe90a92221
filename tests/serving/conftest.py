"""A small trained planner, and servers on free ports of this machine."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from openai import OpenAI

from agentgym import TrainedAgent, Trainer
from agentgym.serving import server
from agentgym.serving.app import create_app

TINY = Path(__file__).parents[1] / "integration"
KEY = "secret"


class Served:
    """A running server.

    Attributes:
        url: Without a path.
        errors: What went wrong on the server's side.
    """

    def __init__(self, agent: TrainedAgent, name: str, key: str | None) -> None:
        self.errors: list[Exception] = []
        self.agent = agent
        self._listener = server.bind("127.0.0.1", 0, guarded=key is not None)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = create_app(agent, name, api_key=key, log=self.errors.append)
        config = uvicorn.Config(
            app, lifespan="on", log_config=None, log_level="error", access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],)
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def post(self, body: bytes, **headers: str) -> tuple[int, Any]:
        """Sends a body as it is; returns the status and what came back."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                body,
                {"authorization": f"Bearer {KEY}", **headers},
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def client(self, key: str = KEY, **options: Any) -> OpenAI:
        return OpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=0,
            _strict_response_validation=True,
            **options,
        )


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planner that opens and closes gates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TINY))
        trainer = Trainer(home=tmp_path_factory.mktemp("home"))
        result = trainer.train("tiny_scenario:Tiny", episodes=1024, group_size=8)
    return Path(result.trained_model_path)


@pytest.fixture(scope="session")
def serve() -> Callable[..., Any]:
    """Serves an agent for the length of a `with`."""

    @contextlib.contextmanager
    def serving(
        agent: TrainedAgent, name: str = "gates_v1.0", key: str | None = KEY
    ) -> Iterator[Served]:
        served = Served(agent, name, key)
        served.start()
        try:
            yield served
        finally:
            served.stop()

    return serving


@pytest.fixture(scope="session")
def gates(trained_folder: Path, serve: Any) -> Iterator[Served]:
    """The trained planner, served to whoever has the key."""
    with serve(TrainedAgent.load(trained_folder)) as served:
        yield served


@pytest.fixture
def client(gates: Served) -> Iterator[OpenAI]:
    """The official client."""
    with gates.client() as made:
        yield made
    assert gates.errors == []


@pytest.fixture(scope="session")
def tools(gates: Served) -> list[Any]:
    """The definitions of the tools that the planner was trained on."""
    return [tool.to_openai() for tool in gates.agent.tools]
