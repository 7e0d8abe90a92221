"""What needs no framework: versions, the shared core, text styles, tasks files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from agentgym import TrainedAgent, Trainer
from agentgym.core.tools import Tool, ToolCall
from agentgym.episodes.chat import MAX_CALLS, ChatModel, Turn, jsonable, retold
from agentgym.errors import ConfigError, MissingExtraError, UsageError
from agentgym.integrations import react
from agentgym.integrations.base import (
    ADAPTERS,
    NO_TELEMETRY,
    Package,
    adapter,
    checked_tools,
    framework_of,
    live_tools,
    signature_tool,
)
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.scenarios.task_file.scenario import load_function
from agentgym.utils.objects import name_of

ROOT = Path(__file__).parents[2]
LOOKUP = {
    "type": "object",
    "properties": {"order_id": {"type": "string", "pattern": "^[0-9]{5}$"}},
    "required": ["order_id"],
}


# Versions --------------------------------------------------------------------------


def _say(package: Package, version: str | None, patch: pytest.MonkeyPatch) -> str:
    def found(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    patch.setattr("agentgym.integrations.base.metadata.version", found)
    return package.problem() or "fine"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "langchain is not installed (supported: langchain>=1.0,<2)"),
        ("0.3.9", "langchain 0.3.9 is too old"),
        ("2.0.1", "langchain 2.0.1 is too new"),
        ("1.4.7", "fine"),
        ("1.10.0rc1", "fine"),
    ],
)
def test_versions_are_checked(
    version: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said in _say(Package("langchain", "1.0", "2"), version, monkeypatch)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_missing_framework_names_its_extra_and_the_range(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = ADAPTERS[name]
    _say(framework.packages[0], None, monkeypatch)
    match = rf"supported: .*agentgym\[{framework.extra}\]"
    with pytest.raises(MissingExtraError, match=match):
        adapter(name)


@pytest.mark.parametrize("name", ["langchain", "autogen", "crewai"])
def test_the_setting_framework_needs_the_framework(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _say(ADAPTERS[name].packages[0], None, monkeypatch)
    with pytest.raises(MissingExtraError, match=rf"agentgym\[{name}\]"):
        Trainer(home=tmp_path).train("customer_support", framework=name)


def _pinned() -> dict[str, str]:
    """The version of each package that `make test-frameworks` installs."""
    return dict(
        line.split("==")
        for file in ("constraints.txt", "constraints-crewai.txt")
        for line in (ROOT / file).read_text().splitlines()
        if "==" in line
    )


def test_the_documented_versions_are_those_that_are_tested() -> None:
    pinned = _pinned()
    documented = {}
    for page in ("langchain", "autogen", "crewai"):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| ([^|]+) \| (\S+) up to (\S+) \| (\S+) \|$", text, re.M)
        for named, least, below, tested in rows:
            for name in re.findall(
                r"(?:^|, )((?:langchain|langgraph|autogen|crewai)[\w-]*)", named
            ):
                documented[name] = (least, below)
                assert tested == pinned[name]
    for framework in ADAPTERS.values():
        for package in framework.packages:
            assert documented.pop(package.name) == (package.least, package.below)
    # What is left is needed by tests and examples only.
    assert set(documented) == {
        *("langchain-classic", "langchain-openai", "autogen-core", "autogen-ext")
    }


@pytest.mark.parametrize("name", ADAPTERS)
def test_tests_run_against_the_tested_versions(name: str) -> None:
    if not ADAPTERS[name].installed:
        pytest.skip(f"{name} is not installed")
    for package in ADAPTERS[name].packages:
        assert metadata.version(package.name) == _pinned()[package.name]


def test_an_unknown_framework() -> None:
    with pytest.raises(UsageError, match="Did you mean 'langchain'"):
        adapter("langchian")


def test_telemetry_is_switched_off() -> None:
    import os

    assert all(os.environ[name] for name in NO_TELEMETRY)
    assert os.environ["CREWAI_DISABLE_TELEMETRY"] == "true"


def test_programs_that_tests_start_are_watched_too(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    tried = tmp_path / "tried"
    code = "import urllib.request as r; r.urlopen('http://example.com', timeout=3)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AGENTGYM_TRIED": str(tried)},
        capture_output=True,
        text=True,
    )
    assert "no network in tests" in done.stderr
    assert tried.read_text() == "example.com\n"


def test_plain_objects_are_of_no_framework() -> None:
    assert framework_of(object()) is None


# Tools -----------------------------------------------------------------------------


def test_an_agent_without_tools() -> None:
    with pytest.raises(UsageError, match="has no tools"):
        checked_tools([], "The agent")


def test_two_tools_of_one_name() -> None:
    tool = Tool("add", "Adds.")
    with pytest.raises(UsageError, match="Two tools are named 'add'"):
        checked_tools([tool, tool], "The agent")


def test_a_tool_with_a_broken_schema() -> None:
    tool = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": 3}}})
    with pytest.raises(UsageError, match="invalid JSON schema"):
        checked_tools([tool], "The agent")


def test_a_tool_without_a_schema() -> None:
    def add(a, b):  # type: ignore[no-untyped-def]
        return a + b

    with pytest.raises(UsageError, match="parameter 'a' has no type"):
        signature_tool(add)
    silent = {"properties": {"a": {"title": "A"}}, "required": ["a"]}
    with pytest.raises(UsageError, match="parameter 'a' has no type"):
        checked_tools([Tool("add", "Adds.", {"type": "object", **silent})], "The agent")


def test_a_tool_from_a_function() -> None:
    def add(a: int, b: int = 0) -> int:
        """Adds two numbers."""
        return a + b

    tool = signature_tool(add)
    assert (tool.name, tool.description) == ("add", "Adds two numbers.")
    assert tool.required == {"a"} and set(tool.properties) == {"a", "b"}


def test_tools_that_cannot_run(trained: TrainedAgent) -> None:
    with pytest.raises(UsageError, match="have no function to run"):
        live_tools(trained, None)
    with pytest.raises(UsageError, match="Did you mean 'lookup_order'"):
        live_tools(trained, {"lookup_oder": print})


def test_tools_that_cannot_be_told_apart_or_understood(trained: TrainedAgent) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    def untyped(a):  # type: ignore[no-untyped-def]
        return a

    with pytest.raises(UsageError, match="Two tools are named 'add'"):
        live_tools(trained, [add, Tool("add", "Adds.", function=add)])
    with pytest.raises(UsageError, match="'untyped': parameter 'a' has no type"):
        live_tools(trained, [add, untyped])


# The shared core -------------------------------------------------------------------


def _ask(trained: TrainedAgent, **options: Any) -> tuple[Turn, ChatModel]:
    chat = ChatModel.of(trained, **options)
    tools = [tool.to_openai() for tool in trained.tools]
    said = [{"role": "user", "content": "Where is my parcel? My order is 12345."}]
    turn, _ = chat.decide(said, tools)
    return turn, chat


def test_the_policy_decides_alone(trained: TrainedAgent) -> None:
    turn, chat = _ask(trained)
    assert turn is Turn.ACT
    assert chat.savings.decided == 1 and chat.savings.tokens_saved > 0
    assert chat.savings.llm_calls == 0


def test_where_it_is_unsure_the_language_model_decides(trained: TrainedAgent) -> None:
    turn, chat = _ask(trained, llm=object(), defer_below=1.0)
    assert turn is Turn.DEFER
    assert chat.savings.deferred == chat.savings.llm_calls == 1


def test_deferring_needs_somebody_to_defer_to(trained: TrainedAgent) -> None:
    with pytest.raises(UsageError, match="llm="):
        ChatModel.of(trained, defer_below=0.5)
    with pytest.raises(UsageError, match="from 0 to 1"):
        ChatModel.of(trained, llm=object(), defer_below=7)


def test_an_agent_that_never_stops_is_stopped(trained: TrainedAgent) -> None:
    tools = [tool.to_openai() for tool in trained.tools]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Order 12345?"}]
    for i in range(MAX_CALLS):
        call = ToolCall("lookup_order", {"order_id": "12345"}, f"call_{i}").to_openai()
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": f"call_{i}", "content": "{}"}
        messages.append(result)
    _, answer = ChatModel.of(trained).decide(messages, tools)
    assert not answer.completion.calls
    assert "20 calls in a row" in str(answer.completion.content)


def test_a_request_that_makes_no_sense(trained: TrainedAgent) -> None:
    with pytest.raises(UsageError, match="messages must be a non-empty list"):
        ChatModel.of(trained).decide([])


def test_a_conversation_retold_says_what_to_say_and_has_no_calls(
    trained: TrainedAgent,
) -> None:
    call = ToolCall("look", {"at": 1}, "c").to_openai()
    # Without tools there is nothing to do but to speak.
    turn, answer = ChatModel.of(trained, llm=object()).decide(
        [{"role": "user", "content": "hello"}], ()
    )
    assert turn is Turn.WORDS and answer.completion.content
    conversation: list[dict[str, Any]] = [
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
    ]
    told = retold(conversation, answer)
    assert [m["role"] for m in told] == ["system", "user", "assistant", "user"]
    assert told[0]["content"].startswith("You are kind.")
    assert str(answer.completion.content) in told[0]["content"]
    assert "look" in told[2]["content"] and "seen" in told[3]["content"]
    assert not any("tool_calls" in m for m in told)
    # Where there is no system message, there is one now.
    assert retold(conversation[1:], answer)[0]["role"] == "system"


def test_values_of_tools_as_json() -> None:
    assert jsonable({"a": (1, 2)}) == {"a": [1, 2]}
    assert jsonable(float("nan")) == "nan"
    assert isinstance(jsonable(object()), str)


# Styles that call tools in text ----------------------------------------------------


TOOLS = [Tool("lookup", "Looks.", LOOKUP).to_openai()]


def test_a_react_prompt_is_read() -> None:
    text = (
        "tools\n\nBegin!\n\nPrevious conversation history:\nHuman: Hi\nAI: Hello\n\n"
        "New input: Where is 12345?\nThought: I use a tool\nAction: lookup\n"
        "Action Input: 12345\nObservation: shipped\nThought:"
    )
    messages = react.read([{"role": "user", "content": text}], TOOLS)
    roles = [m["role"] for m in messages]
    assert roles == ["user", "assistant", "user", "assistant", "tool"]
    call = messages[3]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"order_id": "12345"}
    assert messages[4]["content"] == "shipped"


def test_what_is_written_is_read_again() -> None:
    call = ToolCall("lookup", {"order_id": "12345"})
    for structured in (False, True):
        said = react.write(None, [call], TOOLS, structured=structured)
        head = [{"role": "system", "content": '"action_input"' if structured else "x"}]
        text = f"Question: Where?\n{said}\nObservation: here\nThought:"
        if structured:
            text = f"Where?\n\n{said}\nObservation: here\nThought:"
        *_, asked, called, result = react.read(
            [*head, {"role": "user", "content": text}], TOOLS
        )
        assert asked["content"] == "Where?"
        again = called["tool_calls"][0]["function"]
        assert json.loads(again["arguments"]) == call.arguments
        assert result["content"] == "here"


# Tasks files with the tools of an agent ---------------------------------------------


def _file(folder: Path, **fields: Any) -> str:
    path = folder / "tasks.jsonl"
    lines = [
        {
            "id": f"t{i}",
            "messages": [{"role": "user", "content": f"Where is 1000{i}?"}],
            "expected": [{"name": "lookup", "arguments": {"order_id": f"1000{i}"}}],
            **fields,
        }
        for i in range(5)
    ]
    lines = [{k: v for k, v in line.items() if v is not None} for line in lines]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def _scenario(calls: list[str], path: str, **options: Any) -> Any:
    def lookup(order_id: str) -> str:
        calls.append(order_id)
        return "shipped"

    tool = Tool("lookup", "Looks up an order.", LOOKUP, lookup)
    return ScenarioRegistry.load("task_file", agent_tools=[tool], tasks=path, **options)


def _play(scenario: Any) -> Any:
    environment = scenario.create_environment()
    task = scenario.tasks("train", 0, 1)[0]
    environment.reset_task(task)
    number = task.messages[0]["content"][-6:-1]
    call = ToolCall("lookup", {"order_id": number})
    outcome = environment.act({"tool_calls": [call.to_openai()]})
    environment.act({"content": "Done."})
    judged = environment.outcome()
    environment.close()
    return outcome, judged


def test_lines_need_no_tools_if_an_agent_brings_them(tmp_path: Path) -> None:
    calls: list[str] = []
    outcome, judged = _play(_scenario(calls, _file(tmp_path)))
    assert len(calls) == 1 and outcome.results[0].content == '"shipped"'
    assert judged == (True, 1.0)


def test_dry_tools_do_not_run(tmp_path: Path) -> None:
    calls: list[str] = []
    for dry in ("lookup", "all"):
        outcome, judged = _play(_scenario(calls, _file(tmp_path), dry_run=dry))
        assert not calls and outcome.results[0].content == '{"status": "ok"}'
        assert judged[0]
    with pytest.raises(ConfigError, match="no tool 'lokup'. Did you mean 'lookup'"):
        _scenario(calls, _file(tmp_path), dry_run="lokup")


def test_answers_of_the_file_win_over_live_tools(tmp_path: Path) -> None:
    calls: list[str] = []
    path = _file(tmp_path, responses={"lookup": "lost"})
    outcome, _ = _play(_scenario(calls, path))
    assert not calls and outcome.results[0].content == '"lost"'


def test_a_sandbox_is_entered_around_an_episode(tmp_path: Path) -> None:
    seen: list[str] = []

    @contextmanager
    def sandbox() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    _play(_scenario(seen, _file(tmp_path), sandbox=name_of(sandbox)))
    assert [seen[0], seen[-1]] == ["in", "out"] and len(seen) == 3


def test_a_reward_judges_what_does_not_say_what_is_right(tmp_path: Path) -> None:
    def reward(state: dict[str, Any]) -> float:
        return float(len(state["calls"]) == 1)

    name = name_of(reward)
    assert load_function(name) is reward
    _, judged = _play(_scenario([], _file(tmp_path, expected=None), reward=name))
    assert judged == (True, 1.0)
    with pytest.raises(ConfigError, match="Option 'reward' is unused"):
        _scenario([], _file(tmp_path), reward=name)
