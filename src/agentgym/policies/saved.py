"""A saved agent: a policy, the tools it was trained on, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from agentgym.core.metrics import clean
from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolCall, ToolRunner, tool_map
from agentgym.errors import AgentGymError, FormatError, StoreError
from agentgym.policies.base import DecisionRequest, Policy
from agentgym.policies.registry import load_policy, policy_class
from agentgym.utils.files import JsonFormat

if TYPE_CHECKING:
    from agentgym.utils.assets import DownloadProgress

_FORMAT = JsonFormat("agentgym-model", 1, "an AgentGym model")
FILE = "agent.json"


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What an agent did in answer to a message.

    Attributes:
        status: "finished" with an answer; "asked" the user a question; "pending" on
            a call that you must run; "cut_off" after `max_steps`.
        answer: Its last message; None if pending or cut off.
        messages: The whole conversation.
        calls: All calls it made, in order, including pending ones.
        confidence: Of its least certain decision, 0 to 1.
    """

    status: Literal["finished", "asked", "pending", "cut_off"]
    answer: str | None
    messages: list[Message]
    calls: list[ToolCall]
    confidence: float

    @property
    def pending(self) -> list[ToolCall]:
        """Calls that you must run; see `SavedAgent.run`."""
        if self.status != "pending":
            return []
        return self.calls[-len(self.messages[-1]["tool_calls"]) :]


class SavedAgent:
    """A policy with its tools.

    Attributes:
        policy: Makes the decisions.
        tools: The tools it was trained on: definitions, without functions.
        metadata: policy, scenario, system_prompt, config, metrics, baseline,
            baseline_tokens, run_id, versions (of libraries), created.
    """

    def __init__(
        self, policy: Policy, tools: Sequence[Tool], metadata: Mapping[str, Any]
    ) -> None:
        self.policy = policy
        self.tools = list(tools)
        self.metadata = dict(metadata)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            FormatError: The folder doesn't contain a model that AgentGym can read.
        """
        about = _read(folder)
        try:
            tools = [Tool.from_openai(definition) for definition in about.pop("tools")]
            name = str(about["policy"])
        except (KeyError, TypeError, AttributeError, AgentGymError):
            raise FormatError(f"{folder / FILE} is damaged. Train again.") from None
        return cls(load_policy(name, folder), tools, about)

    @classmethod
    def fetch(cls, folder: Path, progress: DownloadProgress | None = None) -> None:
        """Downloads what the agent in a folder needs to decide.

        Args:
            folder: What `save` wrote.
            progress: Called for each download.

        Raises:
            FormatError: The folder doesn't contain a model that AgentGym can read.
            AssetError: A download failed.
        """
        about = _read(folder)
        policy = policy_class(str(about.get("policy")))
        known = policy.policy_options
        try:
            config = about.get("config") or {}
            options = known(**{n: config[n] for n in known.model_fields if config[n]})
        except (KeyError, TypeError, ValueError):
            options = known()  # It was made by an earlier version.
        policy.fetch(options, progress)

    def save(self, folder: Path | str) -> None:
        """Writes the agent into a folder, which is created if missing.

        Raises:
            StoreError: The folder can't be written.
        """
        folder = Path(folder)
        about = {
            **self.metadata,
            "policy": self.policy.name,
            "tools": [tool.to_openai() for tool in self.tools],
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.policy.save(folder)
            _FORMAT.write(folder / FILE, clean(about))
        except OSError as error:
            raise StoreError(
                f"Cannot write the model to {folder}: {error.strerror or error}."
            ) from error

    def run(
        self,
        message: str | Sequence[Message],
        tools: Sequence[Tool] | None = None,
        max_steps: int = 10,
    ) -> AgentRun:
        """Answers a message, or continues a conversation.

        A call of a tool without a function (or one that needs a scenario's world)
        can't run here: the run ends with status "pending". Run the call, append its
        result to `messages` as a message of role "tool", and call `run` again.

        Args:
            message: What the user says, or a whole conversation.
            tools: The tools it may call; by default those it was trained on.
            max_steps: Maximum number of decisions.
        """
        conversation = self.opening(message)
        known = tool_map(self.tools if tools is None else tools)
        runner = ToolRunner()
        calls: list[ToolCall] = []
        confidence = 1.0
        try:
            for _ in range(max_steps):
                request = DecisionRequest(conversation, list(known.values()))
                decision = self.policy.decide([request])[0]
                confidence = min(confidence, decision.confidence)
                conversation.append({"role": "assistant", **decision.message})
                calls += decision.calls
                if not decision.calls:
                    answer = str(decision.message.get("content") or "")
                    status: Literal["asked", "finished"] = (
                        "asked" if decision.kind == "ask" else "finished"
                    )
                    return AgentRun(status, answer, conversation, calls, confidence)
                if not all(_can_run(known.get(c.name)) for c in decision.calls):
                    return AgentRun("pending", None, conversation, calls, confidence)
                for call in decision.calls:
                    content = runner.run(known, call, None).content
                    conversation.append(
                        {"role": "tool", "tool_call_id": call.id, "content": content}
                    )
        finally:
            runner.close()
        return AgentRun("cut_off", None, conversation, calls, confidence)

    def opening(self, message: str | Sequence[Message]) -> list[Message]:
        """A conversation that opens as in training, with the scenario's system prompt.

        Args:
            message: What the user says, or a whole conversation; its own system
                message wins.
        """
        if isinstance(message, str):
            message = [{"role": "user", "content": message}]
        conversation = [dict(part) for part in message]
        prompt = self.metadata.get("system_prompt")
        if prompt and not any(part.get("role") == "system" for part in conversation):
            # As in training, where every task opens with it.
            conversation.insert(0, {"role": "system", "content": prompt})
        return conversation


def library_versions() -> dict[str, str]:
    """Versions of the libraries that a model depends on."""
    import platform

    import numpy as np

    from agentgym._version import __version__

    return {
        "agentgym": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _can_run(tool: Tool | None) -> bool:
    # An unknown tool can be "run": its result says that it doesn't exist.
    return tool is None or (tool.function is not None and not tool.takes_world)


def _read(folder: Path) -> dict[str, Any]:
    if not (folder / FILE).exists():
        raise FormatError(
            f"{folder} doesn't contain an AgentGym model: {FILE} is missing."
        )
    return _FORMAT.read(folder / FILE)
