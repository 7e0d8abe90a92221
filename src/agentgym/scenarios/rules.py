"""The rules that a scenario keeps: one function for each.

Each returns what is wrong and what to do about it, or "" if the rule is kept; its
docstring is the rule. Those of tasks are in `task_rules.py`; `checks.py` runs all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.core.schemas import SchemaProblem, check_schema
from agentgym.core.task import DIFFICULTIES, Message
from agentgym.core.tools import ToolCall
from agentgym.errors import ConfigError, one_line
from agentgym.scenarios.environment import Environment
from agentgym.scenarios.probing import (
    CLOSING,
    UNKNOWN_CALL,
    Bench,
    NotChecked,
)
from agentgym.scenarios.task_rules import (
    best_steps_positive,
    seeds_differ,
    splits_disjoint,
    task_ids_unique,
    tasks_deterministic,
    tasks_exist,
    tasks_open_with_user,
)

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHARES = ("tool_reliability", "task_success", "cost_reduction", "time_savings")
_AMOUNTS = (
    "avg_tokens_used",
    "avg_response_time",
    "cost_per_solved_task",
    "final_reward",
    "calibration_error",
)


# Of the class --------------------------------------------------------------------


def name_is_identifier(bench: Bench) -> str:
    """The name is lower-case letters, digits and underscores."""
    name: Any = getattr(bench.scenario, "name", None)
    if isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        return ""
    return f"name is {name!r}. Use lower-case letters, digits and _, as in my_shop."


def described(bench: Bench) -> str:
    """Description, difficulty and estimated time are given."""
    scenario = bench.scenario
    for name in ("description", "estimated_time"):
        text = getattr(scenario, name, None)
        if not isinstance(text, str) or not text.strip() or "\n" in text:
            return f"{name} is {text!r}. Set it to one line of text."
    difficulty = getattr(scenario, "difficulty", None)
    if difficulty not in DIFFICULTIES:
        return f"difficulty is {difficulty!r}. Use one of {', '.join(DIFFICULTIES)}."
    return ""


def settings_are_read(bench: Bench) -> str:
    """Options have names of their own, and training defaults are valid settings."""
    from agentgym.core.config import TrainingConfig

    scenario = bench.scenario
    taken = sorted(set(scenario.options) & set(TrainingConfig.model_fields))
    if taken:
        return (
            f"options has {', '.join(taken)}, which the trainer reads itself. Rename "
            "the option, or put a value of your own into training_defaults."
        )
    config = TrainingConfig(scenario="checked")
    try:
        config.resolve(scenario.training_defaults(), {}, scenario.options)
    except ConfigError as error:
        return f"training_defaults: {error}"
    return ""


def components_known(bench: Bench) -> str:
    """Trainable components are known, and at least one of them learns."""
    from agentgym.core.components import COMPONENTS

    declared = bench.scenario.define_trainable_components()
    unknown = sorted(set(declared) - set(COMPONENTS))
    if unknown:
        return (
            f"define_trainable_components names {', '.join(unknown)}. Known: "
            f"{', '.join(COMPONENTS)}."
        )
    if not any(value is True for value in declared.values()):
        return "define_trainable_components lets nothing learn. Set one to True."
    return ""


def success_criteria_known(bench: Bench) -> str:
    """Success criteria name metrics that are measured, with values in range."""
    criteria = bench.scenario.success_criteria()
    if not criteria:
        return "success_criteria is empty. Give a target, as {'tool_reliability': 0.9}."
    shares = (*_SHARES, *bench.scenario.measures)
    for name, value in criteria.items():
        if name not in (*shares, *_AMOUNTS):
            return (
                f"success_criteria names '{name}', which is not measured. Known: "
                f"{', '.join((*shares, *_AMOUNTS))}. Yours go into `measures`."
            )
        if not _is_number(value) or (name in shares and not 0 < value <= 1):
            wanted = "above 0 and at most 1" if name in shares else "a number"
            return f"success_criteria: {name} is {value!r}. It should be {wanted}."
    return ""


# Of the tools --------------------------------------------------------------------


def environment_is_made(bench: Bench) -> str:
    """create_environment gives an Environment, with the settings it was given."""
    environment: Any = bench.make_environment(max_steps=3)
    if not isinstance(environment, Environment):
        return f"create_environment gives {environment!r}, which is no Environment."
    if environment.max_steps != 3 or environment.runner is not bench.runner:
        return "create_environment drops max_steps or runner. Hand them on."
    return ""


def tools_declared(bench: Bench) -> str:
    """There is a tool to call, and each has a function."""
    tools = bench.made().tool_list
    if not tools:
        return "The environment has no tools. Return at least one from tools()."
    dead = [tool.name for tool in tools if tool.function is None]
    return f"Without a function: {', '.join(dead)}. Give each one." if dead else ""


def tool_schemas_valid(bench: Bench) -> str:
    """Tools have a name, a description, and a JSON schema that makes sense."""
    for tool in bench.made().tool_list:
        if not isinstance(tool.name, str) or not _TOOL_NAME.fullmatch(tool.name):
            return (
                f"Tool {tool.name!r}: use letters, digits, _ and -, at most 64, as "
                "model providers demand."
            )
        if not tool.description.strip():
            return f"Tool '{tool.name}' has no description; policies choose by it."
        try:
            check_schema(tool.parameters)
        except SchemaProblem as problem:
            return f"Tool '{tool.name}': invalid JSON schema: {problem}."
        undeclared = sorted(tool.required - set(tool.properties))
        if undeclared:
            return (
                f"Tool '{tool.name}' requires {', '.join(undeclared)} but has no such "
                "property. Declare it."
            )
    return ""


def tools_run(bench: Bench) -> str:
    """Tools answer a valid call, or refuse it with ToolError."""
    for probe in bench.probes:
        if probe.raised:
            return (
                f"Tool '{probe.tool.name}' raises {probe.raised} for "
                f"{json.dumps(probe.arguments)}. Return an answer, or raise ToolError "
                "with a message that the agent can read."
            )
    untried = [probe.tool.name for probe in bench.probes if probe.arguments is None]
    if untried:
        bench.notes.append(
            f"Not tried, since no arguments could be made up: {', '.join(untried)}."
        )
    return ""


def tool_results_are_json(bench: Bench) -> str:
    """What tools return is JSON."""
    for probe in bench.probes:
        if probe.not_json:
            return (
                f"Tool '{probe.tool.name}' returns no JSON: {probe.not_json}. Return "
                "text, finite numbers, lists and mappings."
            )
    return ""


def tools_answer_in_time(bench: Bench) -> str:
    """Tools answer within the time limit."""
    for probe in bench.probes:
        if probe.hung:
            return (
                f"Tool '{probe.tool.name}' gives no answer within "
                f"{bench.tool_timeout:g} s for {json.dumps(probe.arguments)}. Give it "
                "a time limit of its own."
            )
    return ""


# Of the environment --------------------------------------------------------------


def environment_steps(bench: Bench) -> str:
    """The environment can be reset, stepped to an end and judged."""
    environment = bench.made()
    for script in ([UNKNOWN_CALL], [{"content": "Hello?"}, {"content": "Done."}]):
        environment.reset_task(bench.task)
        for message in script:
            if not environment.done:
                environment.act(message)
        while not environment.done:
            environment.act(UNKNOWN_CALL)
        success, outcome = environment.outcome()
        if not isinstance(success, bool) or not 0.0 <= outcome <= 1.0:
            return (
                f"outcome() gives ({success!r}, {outcome!r}). Give whether the task "
                "was solved, and how far it got, 0 to 1."
            )
        # A world that cannot be closed has a rule of its own.
        environment.world = None
    return ""


def world_closes(bench: Bench) -> str:
    """A world can be freed after an episode, and another one be opened."""
    environment = bench.made()
    try:
        environment.reset_task(bench.task)
    except Exception:
        raise NotChecked("environment_steps") from None
    environment.release()
    environment.reset_task(bench.task)
    environment.close()
    if environment.world is not None:
        return "close() leaves the world open. Call super().close() in yours."
    return ""


def environment_deterministic(bench: Bench) -> str:
    """The same seed and the same actions give the same observations."""
    healthy = [probe for probe in bench.probes if probe.healthy]
    scripts: list[list[Message]] = [[UNKNOWN_CALL, CLOSING], [CLOSING]]
    for probe in healthy:
        call = ToolCall(probe.tool.name, probe.arguments or {})
        scripts.append([{"content": None, "tool_calls": [call.to_openai()]}])
    seen = [
        [_observations(environment, script) for script in scripts]
        for environment in (bench.environment(), bench.environment())
    ]
    for script, first, second in zip(scripts, *seen, strict=True):
        if first != second:
            calls = script[0].get("tool_calls") or [{"function": {"name": "closing"}}]
            return (
                f"Two episodes with the same seed differ after "
                f"'{calls[0]['function']['name']}'. Let worlds, tools and replies "
                "depend on the task alone: no clock, no global random numbers."
            )
    return ""


def gymnasium_accepts(bench: Bench) -> str:
    """Gymnasium's own checker accepts the environment."""
    from gymnasium.utils.env_checker import check_env

    environment = bench.environment()
    try:
        check_env(environment, skip_render_check=True)
    except Exception as error:
        return f"gymnasium's check_env says: {one_line(error)}."
    return ""


# Of the rewards ------------------------------------------------------------------


def rewards_are_finite(bench: Bench) -> str:
    """broadcast_rewards gives one finite number for each step."""
    for trajectory in bench.episodes:
        rewards: Sequence[Any] = bench.scenario.broadcast_rewards(trajectory)
        if len(rewards) != len(trajectory.steps):
            return (
                f"broadcast_rewards gives {len(rewards)} rewards for "
                f"{len(trajectory.steps)} steps. Give one for each."
            )
        if not all(_is_number(reward) for reward in rewards):
            return f"broadcast_rewards gives {list(rewards)}. Give finite numbers."
    return ""


def step_reward_is_finite(bench: Bench) -> str:
    """calculate_reward gives one finite number for a transition."""
    environment = bench.environment()
    environment.reset_task(bench.task)
    before = list(environment.messages)
    environment.act(UNKNOWN_CALL)
    reward: Any = bench.scenario.calculate_reward(
        before, UNKNOWN_CALL, list(environment.messages)
    )
    if not _is_number(reward):
        return f"calculate_reward gives {reward!r}. Give a finite number."
    return ""


def rewards_tell_good_from_bad(bench: Bench) -> str:
    """A solved episode earns more than one of the same task that is not."""
    if rewards_are_finite(bench):
        raise NotChecked("rewards_are_finite")
    best: dict[str, dict[bool, float]] = {}
    for trajectory in bench.episodes:
        rewards = bench.scenario.broadcast_rewards(trajectory)
        mean = math.fsum(rewards) / len(rewards)
        solved = trajectory.success is True
        earned = best.setdefault(trajectory.task.id, {})
        earned[solved] = max(mean, earned.get(solved, -math.inf))
    pairs = {task: earned for task, earned in best.items() if len(earned) == 2}
    for task, earned in pairs.items():
        if earned[True] <= earned[False]:
            return (
                f"Task '{task}': a solved episode earns {earned[True]:g} a step, one "
                f"that is not {earned[False]:g}. Nothing can be learned from that: "
                "reward what is right."
            )
    if not pairs:
        bench.notes.append("Not shown: no solved episode was found by trying.")
    return ""


RULES: tuple[Callable[[Bench], str], ...] = (
    name_is_identifier,
    described,
    settings_are_read,
    components_known,
    success_criteria_known,
    tasks_exist,
    tasks_open_with_user,
    tasks_deterministic,
    seeds_differ,
    task_ids_unique,
    splits_disjoint,
    best_steps_positive,
    environment_is_made,
    tools_declared,
    tool_schemas_valid,
    environment_steps,
    world_closes,
    tools_run,
    tool_results_are_json,
    tools_answer_in_time,
    environment_deterministic,
    gymnasium_accepts,
    rewards_are_finite,
    step_reward_is_finite,
    rewards_tell_good_from_bad,
)
"""All rules, in the order in which to mend them."""


def _observations(environment: Environment, script: Sequence[Message]) -> list[Any]:
    seen: list[Any] = [environment.reset(seed=7)[0]]
    for message in script:
        observation, reward, terminated, truncated, _ = environment.step(
            json.dumps(message)
        )
        seen.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            break
    return seen


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
