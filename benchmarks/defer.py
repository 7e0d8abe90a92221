"""A planner that defers to a language model where it is unsure: what that saves.

    python benchmarks/defer.py          # needs openagentgym[langchain]

The same held-out tasks of customer_support are played by a LangChain agent three ways:
with a language model alone, with the trained planner alone, and with the planner and
the language model behind it (`defer_below`). Everything is counted: calls to the
language model, and tokens that it read and wrote.

The language model is scripted and stands in for a costly one: it knows what is due and
does that, but errs on a share of its decisions (`--errors`). So its reliability is an
assumption; calls, tokens and the planner's part are measured. Tokens of all three are
counted by the same tokenizer, the planner's.

What it leaves out: words (each way closes a conversation in its own), latency, prices.
"""

from __future__ import annotations

import json
import random
import tempfile
from typing import Any

from _common import Row, parser, report, say, share, table

from agentgym import TrainedAgent, Trainer
from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import Trajectory
from agentgym.episodes.chat import TO_SAY
from agentgym.episodes.episode import AgentTask, Episode
from agentgym.integrations.base import adapter
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.training.evaluation import Evaluation

DEFER_BELOW = (0.5, 0.8, 0.95)


def main() -> None:
    """Trains a planner, and plays."""
    made = parser(__doc__)
    made.add_argument("--episodes", type=int, default=8_000, help="of the training")
    made.add_argument("--tasks", type=int, default=200, help="held-out tasks to play")
    made.add_argument(
        "--errors", type=float, default=0.02, help="of the scripted model"
    )
    made.add_argument("--seed", type=int, default=0)
    options = made.parse_args()
    count = 20 if options.quick else options.tasks
    with tempfile.TemporaryDirectory() as home:
        say("Training the planner")
        result = Trainer(home=home).train(
            "customer_support",
            episodes=400 if options.quick else options.episodes,
            seed=options.seed,
            heldout_tasks=50,
        )
        trained = TrainedAgent.load(result.model, home=home)
    ways: list[tuple[str, dict[str, Any]]] = [
        ("language model alone", {"defer_below": 1.0}),
        ("planner alone", {}),
        *((f"planner, defer below {x:g}", {"defer_below": x}) for x in DEFER_BELOW),
    ]
    rows = []
    for name, how in ways:
        say(f"Playing: {name}")
        rows.append({"way": name, **_play(trained, how, count, options.errors)})
    costly = rows[0]["llm_tokens"]
    for row in rows:
        row["cost_reduction"] = 1 - row["llm_tokens"] / costly
    lines = [
        [
            row["way"],
            share(row["tool_reliability"], row["interval"]),
            str(row["llm_calls"]),
            f"{row['llm_tokens']:,}",
            share(row["cost_reduction"]),
        ]
        for row in rows
    ]
    header = "way, tool reliability, LLM calls, LLM tokens, fewer tokens"
    last = rows[-1]
    report(
        options,
        name="defer",
        rows=rows,
        ratio=costly / max(1, last["llm_tokens"]),
        peer="the language model alone",
        text=(
            f"{table(header.split(', '), lines)}\n\n{count} held-out tasks; the"
            f" stand-in errs on {options.errors:.0%} of its decisions"
        ),
    )


def _play(trained: TrainedAgent, how: dict[str, Any], count: int, errors: float) -> Row:
    scenario = ScenarioRegistry.load("customer_support")
    native = adapter("langchain")
    rng = random.Random(0)
    played: list[Trajectory] = []
    calls = tokens = 0
    for task in scenario.tasks("heldout", 2, count):
        environment = scenario.create_environment()
        trajectory = Trajectory(task)
        episode = Episode(environment, trajectory)
        model = None
        if how:
            model = _scripted(environment, trained.policy, rng, errors)
        # Above any confidence, the language model decides alone.
        agent = native.wrap_agent(trained, tools=_tools(episode), llm=model, **how)
        _converse(agent, AgentTask.of(episode), episode)
        episode.close()
        environment.close()
        played.append(trajectory)
        if model is not None:
            calls += model.calls
            tokens += model.tokens
    metrics = Evaluation(played).metrics()
    interval = metrics.tool_reliability_interval
    return {
        "tool_reliability": metrics.tool_reliability,
        "interval": [interval.low, interval.high],
        "task_success": metrics.task_success,
        "llm_calls": calls,
        "llm_tokens": tokens,
    }


def _tools(episode: Episode) -> dict[str, Any]:
    def bound(name: str) -> Any:
        return lambda **arguments: json.loads(episode.call(name, arguments).content)

    return {tool.name: bound(tool.name) for tool in episode.tools}


def _converse(agent: Any, task: AgentTask, episode: Episode) -> None:
    messages: list[Any] = [("user", task.prompt)]
    while not episode.over:
        messages = agent.invoke({"messages": messages})["messages"]
        reply = task.reply(messages[-1].text)
        if reply is None:
            return
        messages.append(("user", reply))


def _scripted(environment: Any, policy: Any, rng: random.Random, errors: float) -> Any:
    """A chat model that knows what is due, and counts what it is asked."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, convert_to_openai_messages
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        calls: int = 0
        tokens: int = 0

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self.bind(tools=tools)

        def _generate(self, messages: Any, stop: Any = None, **options: Any) -> Any:
            tools = options.get("tools") or []
            message = self._answer(messages, tools)
            read = json.dumps(convert_to_openai_messages(messages)) + json.dumps(tools)
            written = str(message.tool_calls or message.content)
            self.calls += 1
            self.tokens += policy.count_tokens(read) + policy.count_tokens(written)
            return ChatResult(generations=[ChatGeneration(message=message)])

        def _answer(self, messages: Any, tools: list[Any]) -> AIMessage:
            if not tools:  # Words only: it says what it is told to say.
                return AIMessage(messages[0].text.partition(TO_SAY)[2])
            due = [] if environment.done else _due(environment)
            if not due or environment.done:
                return AIMessage("It is done.")
            step = due[0]
            if step.ask:
                return AIMessage(f"What is your {_NAMES[step.ask]}?")
            name = step.tool
            if rng.random() < errors:
                name = rng.choice(tools)["function"]["name"]
            arguments = {
                key if key != "article" else "query": value
                for key, value in step.arguments
            }
            call = ToolCall(name, arguments, f"call_{rng.getrandbits(64):x}")
            made = {"name": call.name, "args": call.arguments, "id": call.id}
            return AIMessage("", tool_calls=[made])

    return Scripted()


_NAMES = {"order_id": "order number", "email": "e-mail", "address": "address"}


def _due(environment: Any) -> list[Any]:
    issues = range(len(environment.task.goal.issues))
    return [step for i in issues for step in environment._due(i)]


if __name__ == "__main__":
    main()
