from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentgym import Tool, TrainedAgent, Trainer, TrainingResult
from agentgym.errors import (
    FormatError,
    MissingExtraError,
    ModelNotFoundError,
    PolicyNotFoundError,
    ScenarioError,
    StoreError,
)
from agentgym.policies import registry

TINY = Path(__file__).parents[1] / "integration"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TINY))
        patch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")
        trainer = Trainer(home=home)
        yield trainer.train("tiny_scenario:Tiny", policy="tiny"), home


@pytest.fixture
def result(trained: tuple[TrainingResult, Path]) -> TrainingResult:
    return trained[0]


@pytest.fixture
def home(trained: tuple[TrainingResult, Path]) -> Path:
    return trained[1]


@pytest.fixture
def agent(result: TrainingResult) -> TrainedAgent:
    return TrainedAgent.load(Path(result.trained_model_path))


def _live(log: list[str]) -> list[Tool]:
    def make(name: str) -> Any:
        def run(gate: str) -> dict[str, str]:
            log.append(f"{name} {gate}")
            return {"gate": gate}

        return run

    parameters = {"type": "object", "properties": {"gate": {"type": "string"}}}
    names = ("open_gate", "close_gate", "report_fault")
    return [Tool(name, f"Does {name}", parameters, make(name)) for name in names]


def test_loading_by_name_version_and_folder(
    result: TrainingResult, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(result.trained_model_path)
    for ref in ("tiny", "tiny_v1.0", "tiny:v1.0", str(folder), folder):
        agent = TrainedAgent.load(ref, home=home)
        assert [tool.name for tool in agent.tools][:1] == ["open_gate"]
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("AGENTGYM_HOME", str(home / "empty"))
    assert TrainedAgent.load("tiny_v1.0").metadata["scenario"] == "tiny_scenario:Tiny"


def test_metadata(agent: TrainedAgent, result: TrainingResult) -> None:
    about = agent.metadata
    assert about["policy"] == "tiny"
    assert about["config"] == result.config
    assert about["metrics"] == result.metrics.to_dict()
    assert about["baseline"] == result.baseline.to_dict()
    assert about["run_id"] == result.run_id
    assert about["versions"].keys() == {"agentgym", "python", "numpy"}
    assert about["created"].endswith("+00:00")


def test_saving_and_loading_again(agent: TrainedAgent, tmp_path: Path) -> None:
    agent.save(tmp_path / "new" / "folder")
    again = TrainedAgent.load(tmp_path / "new" / "folder")
    assert again.metadata == agent.metadata
    assert [t.to_openai() for t in again.tools] == [t.to_openai() for t in agent.tools]
    text = "Please open gate B17"
    assert again.run(text) == agent.run(text)


def test_running_with_live_tools(agent: TrainedAgent) -> None:
    log: list[str] = []
    run = agent.run("I am at A10. I want you to close B17", tools=_live(log))
    assert log == ["close_gate B17"]
    assert run.status == "finished"
    assert run.answer == "It is done."
    assert [call.name for call in run.calls] == ["close_gate"]
    assert [m["role"] for m in run.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert run.messages[2]["content"] == '{"gate": "B17"}'
    assert 0 < run.confidence < 0.9
    assert run.pending == []


def test_a_pending_call_is_run_by_the_caller(agent: TrainedAgent) -> None:
    run = agent.run("Please open gate B17")
    assert run.status == "pending"
    assert run.answer is None
    (call,) = run.pending
    assert (call.name, call.arguments) == ("open_gate", {"gate": "B17"})
    answer = {"role": "tool", "tool_call_id": call.id, "content": "{}"}
    done = agent.run([*run.messages, answer])
    assert done.status == "finished"


def test_tools_that_need_a_world_are_left_to_the_caller(agent: TrainedAgent) -> None:
    tools = [Tool(t.name, "", t.parameters, print, True) for t in agent.tools]
    assert agent.run("Please open gate B17", tools=tools).status == "pending"


def test_asking(agent: TrainedAgent) -> None:
    run = agent.run("Please open the gate")
    assert run.status == "asked"
    assert run.answer == "Which gate?"


def test_cut_off(agent: TrainedAgent) -> None:
    run = agent.run("Please open gate B17", tools=_live([]), max_steps=1)
    assert run.status == "cut_off"
    assert run.answer is None
    assert run.messages[-1]["role"] == "tool"


def test_a_tool_that_raises_is_read_as_a_failure(agent: TrainedAgent) -> None:
    def broken(gate: str) -> None:
        raise OSError("no power")

    tools = [Tool(t.name, "", t.parameters, broken) for t in agent.tools]
    run = agent.run("Please open gate B17", tools=tools)
    assert "no power" in run.messages[2]["content"]


def test_two_tools_of_one_name(agent: TrainedAgent) -> None:
    with pytest.raises(ScenarioError, match="open_gate"):
        agent.run("x", tools=[*_live([]), *_live([])])


def test_the_system_prompt_opens_the_conversation(agent: TrainedAgent) -> None:
    other = TrainedAgent(
        agent.policy, agent.tools, {**agent.metadata, "system_prompt": "Be kind."}
    )
    messages = other.run("Please open gate B17").messages
    assert messages[0] == {"role": "system", "content": "Be kind."}
    own = [{"role": "system", "content": "Mine."}, messages[1]]
    assert other.run(own).messages[:2] == own
    assert len(own) == 2  # What the caller gave stays as it was.


def test_evaluating(agent: TrainedAgent, result: TrainingResult) -> None:
    assert agent.evaluate().tool_reliability == result.metrics.tool_reliability
    assert agent.evaluate("tiny_scenario:Tiny", split="train", tasks=7).tasks == 7


@pytest.mark.parametrize("name", ["langchain", "autogen", "crewai"])
def test_adapters_name_their_extra(agent: TrainedAgent, name: str) -> None:
    with pytest.raises(MissingExtraError, match=rf"agentgym\[{name}\]"):
        getattr(agent, f"to_{name}")()


# Models that are none


def test_no_such_model(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="tiny_v1.0"):
        TrainedAgent.load("nope", home=home)
    with pytest.raises(ModelNotFoundError, match="folder doesn.t exist"):
        TrainedAgent.load(tmp_path / "nope")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "agent.json is missing"),
        ("", "truncated or isn't valid JSON"),
        ('{"format": "agentgym-mod', "truncated or isn't valid JSON"),
        ("[]", "isn't an AgentGym model"),
        ('{"format": "pt"}', "isn't an AgentGym model"),
        ('{"format": "agentgym-model", "version": 2}', "Update AgentGym"),
        ('{"format": "agentgym-model", "version": 0}', "Train again"),
        ('{"format": "agentgym-model"}', "Train again"),
        ('{"format": "agentgym-model", "version": 1}', "damaged"),
        (
            '{"format": "agentgym-model", "version": 1, "tools": [1], "policy": "x"}',
            "damaged",
        ),
    ],
)
def test_foreign_folders(tmp_path: Path, content: str | None, text: str) -> None:
    if content is not None:
        (tmp_path / "agent.json").write_text(content)
    with pytest.raises(FormatError, match=text):
        TrainedAgent.load(tmp_path)


def test_a_model_whose_weights_are_gone(result: TrainingResult, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(result.trained_model_path, folder)
    (folder / "tool.npy").unlink()
    with pytest.raises(FormatError):
        TrainedAgent.load(folder)


def test_a_model_of_a_policy_that_is_not_here(
    result: TrainingResult, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(result.trained_model_path, folder)
    about = json.loads((folder / "agent.json").read_text())
    (folder / "agent.json").write_text(json.dumps({**about, "policy": "nobody"}))
    with pytest.raises(PolicyNotFoundError, match="Available: llm, planner"):
        TrainedAgent.load(folder)


def test_a_folder_that_cannot_be_read_or_written(
    agent: TrainedAgent, tmp_path: Path
) -> None:
    (tmp_path / "agent.json").mkdir()
    with pytest.raises(FormatError, match="cannot be read"):
        TrainedAgent.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Cannot write the model"):
        agent.save(tmp_path / "file")
