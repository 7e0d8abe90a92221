"""`agentgym serve`: a trained model as an OpenAI-compatible endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import (
    AgentArgument,
    HomeOption,
    error_line,
    load_agent,
    note,
    single_command,
    write_crash_log,
)
from agentgym.errors import MissingExtraError, UsageError

app = single_command()


@app.command()
def serve(
    model: AgentArgument,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on. If others can reach it, set an API key.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Port to listen on; 0 picks a free one."
        ),
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar="AGENTGYM_API_KEY",
            help="Bearer token that clients must send. On the command line it is"
            " visible in the process list; prefer the environment variable.",
        ),
    ] = None,
    home_folder: HomeOption = None,
) -> None:
    """Serve a trained model as an OpenAI-compatible endpoint.

    Press Ctrl-C to stop; requests in progress are answered first.
    """
    try:
        from agentgym.serving import server
        from agentgym.serving.app import create_app
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtraError("Serving a model", "api") from None
    from agentgym.policies.base import DecisionRequest

    if api_key is not None:
        api_key = api_key.strip()
        if not (api_key.isascii() and api_key):
            raise UsageError("The API key must be ASCII and not empty.")
    # First, because it is fast; loading a model may not be.
    with server.bind(host, port, guarded=api_key is not None) as listener:
        name, agent = load_agent(model)
        if Path(name).name != name:
            name = Path(name).resolve().name
        # The first decision prepares everything for the others.
        opening = agent.opening("Hello")
        agent.policy.decide([DecisionRequest(opening, agent.tools)])
        address = _address(listener.getsockname())
        served = create_app(agent, name, api_key=api_key, log=_log)
        server.run(
            served,
            listener,
            started=lambda: note(
                f"Serving {name} at {address}/v1 (model '{name}', "
                f"{'with' if api_key else 'without'} an API key). Press Ctrl-C to stop."
            ),
        )
    note("Stopped. All requests were answered.")


def _address(name: tuple[str, int]) -> str:
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


def _log(error: Exception) -> None:
    where = write_crash_log(error)
    what = f"{type(error).__name__}: {error}".rstrip(": .")
    error_line(f"A request failed: {what}. The traceback is in {where}.")
