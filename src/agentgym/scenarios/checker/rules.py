"""The rules for scenarios, one function each.

Each yields what is wrong and how to fix it, or nothing if the scenario obeys the rule.
Only the first problem is reported. The docstring is the rule.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentgym.core.schemas import SchemaProblem, check_schema
from agentgym.core.task import DIFFICULTIES, SPLITS, Message, Task
from agentgym.errors import ConfigError, one_line
from agentgym.scenarios.checker.bench import (
    CLOSING,
    TASKS,
    UNKNOWN_CALL,
    Bench,
    NotChecked,
    ToolProbe,
    calling,
    needs,
    observations,
)
from agentgym.scenarios.environment import Environment

_ROLES = ("system", "user", "assistant", "tool")
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


def name_is_identifier(bench: Bench) -> Iterator[str]:
    """The name is lower-case letters, digits and underscores."""
    name: Any = getattr(bench.scenario, "name", None)
    if isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        return
    yield (
        f"name is {name!r}. Use lower-case letters, digits and _, for example my_shop."
    )


def described(bench: Bench) -> Iterator[str]:
    """Description, difficulty and estimated time are set."""
    scenario = bench.scenario
    for name in ("description", "estimated_time"):
        text = getattr(scenario, name, None)
        if not isinstance(text, str) or not text.strip() or "\n" in text:
            yield f"{name} is {text!r}. Set it to one line of text."
    difficulty = getattr(scenario, "difficulty", None)
    if difficulty not in DIFFICULTIES:
        yield f"difficulty is {difficulty!r}. Use one of {', '.join(DIFFICULTIES)}."


def settings_are_read(bench: Bench) -> Iterator[str]:
    """Options differ from the trainer's settings; training defaults are valid."""
    from agentgym.core.config import TrainingConfig

    scenario = bench.scenario
    taken = sorted(set(scenario.options) & set(TrainingConfig.model_fields))
    if taken:
        yield (
            f"options contains {', '.join(taken)}, a setting of the trainer. Rename "
            "it, or set its default in training_defaults."
        )
    config = TrainingConfig(scenario="checked")
    try:
        config.resolve(scenario.training_defaults(), {}, scenario.options)
    except ConfigError as error:
        yield f"training_defaults: {error}"


def components_known(bench: Bench) -> Iterator[str]:
    """Trainable components exist, and at least one of them learns."""
    from agentgym.core.components import COMPONENTS

    declared = bench.scenario.define_trainable_components()
    unknown = sorted(set(declared) - set(COMPONENTS))
    if unknown:
        yield (
            f"define_trainable_components names {', '.join(unknown)}. Available: "
            f"{', '.join(COMPONENTS)}."
        )
    if not any(value is True for value in declared.values()):
        yield "define_trainable_components trains nothing. Set one to True."


def success_criteria_known(bench: Bench) -> Iterator[str]:
    """Success criteria are measured metrics, with values in range."""
    criteria = bench.scenario.success_criteria()
    if not criteria:
        yield "success_criteria is empty. Set a target: {'tool_reliability': 0.9}."
    shares = (*_SHARES, *bench.scenario.measures)
    for name, value in criteria.items():
        if name not in (*shares, *_AMOUNTS):
            yield (
                f"success_criteria names '{name}', which is not measured. Available: "
                f"{', '.join((*shares, *_AMOUNTS))}. Declare your own in `measures`."
            )
        if not _is_number(value) or (name in shares and not 0 < value <= 1):
            wanted = "above 0 and at most 1" if name in shares else "a number"
            yield f"success_criteria: {name} is {value!r}. It should be {wanted}."


# Of the tasks --------------------------------------------------------------------


def tasks_exist(bench: Bench) -> Iterator[str]:
    """Each split has tasks: as many as asked for, or all it has."""
    for split in SPLITS:
        tasks: Sequence[Any] = bench.draw(split, 0)
        # A small split is measured once; in training, tasks recur.
        if not tasks or len(tasks) > TASKS or (split == "train" and len(tasks) < TASKS):
            yield (
                f"tasks('{split}', seed=0, count={TASKS}) returns {len(tasks)} tasks. "
                "Return as many as asked for; training tasks may repeat."
            )
        for task in tasks:
            if not isinstance(task, Task):
                yield f"tasks('{split}') returns {task!r}. Return Task objects."
            if task.split != split:
                yield f"Task '{task.id}' of '{split}' has split '{task.split}'."
            if not task.messages:
                yield f"Task '{task.id}' has no messages. Add some."


def tasks_open_with_user(bench: Bench) -> Iterator[str]:
    """Every task opens with chat messages, the last one from the user."""
    for task in _all_tasks(bench):
        for message in task.messages:
            if not isinstance(message, dict) or message.get("role") not in _ROLES:
                yield f"Task '{task.id}' opens with {message!r}, not a message."
        last = task.messages[-1]
        if last["role"] != "user" or not str(last.get("content") or "").strip():
            yield (
                f"The opening of task '{task.id}' doesn't end with the user. Add a "
                "message: {'role': 'user', 'content': ...}."
            )


def tasks_deterministic(bench: Bench) -> Iterator[str]:
    """The same seed leads to the same tasks."""
    for split in SPLITS:
        tasks = bench.tasks[split]
        again = bench.draw(split, 0)
        if len(tasks) != len(again):
            yield f"tasks('{split}', seed=0) differ in number between two calls."
        for first, second in zip(tasks, again, strict=True):
            if _face(first) != _face(second):
                yield (
                    f"tasks('{split}', seed=0) differ between two calls, at task "
                    f"'{first.id}'. Draw with random.Random(seed) only."
                )


def seeds_differ(bench: Bench) -> Iterator[str]:
    """Another seed leads to other training tasks."""
    if list(map(_opening, bench.tasks["train"])) == list(
        map(_opening, bench.draw("train", 1))
    ):
        yield (
            "tasks('train') are the same for seeds 0 and 1. The trainer passes a new "
            "seed in every iteration: draw, or at least shuffle, with it."
        )


def task_ids_unique(bench: Bench) -> Iterator[str]:
    """Within a split, an id belongs to one task."""
    for split in SPLITS:
        seen: dict[str, Any] = {}
        for task in [*bench.tasks[split], *bench.draw(split, 1)]:
            if seen.setdefault(task.id, _face(task)) != _face(task):
                yield (
                    f"Two different tasks of '{split}' have the id '{task.id}'. Build "
                    "the id from everything the task depends on, including the seed."
                )


def splits_disjoint(bench: Bench) -> Iterator[str]:
    """Splits don't share an opening message of the user."""
    seen: dict[str, str] = {}
    for split in SPLITS:
        for opening in {_opening(task) for task in bench.tasks[split]}:
            other = seen.setdefault(opening, split)
            if other != split:
                yield (
                    f"'{other}' and '{split}' share the opening {opening[:60]!r}. "
                    "Training tasks must not be used for measuring: use other wordings."
                )


def best_steps_positive(bench: Bench) -> Iterator[str]:
    """best_steps of every task is at least 1."""
    for task in _all_tasks(bench):
        if type(task.best_steps) is not int or task.best_steps < 1:
            yield (
                f"Task '{task.id}' has best_steps {task.best_steps!r}. Count the "
                "decisions of the shortest solution, including the final answer."
            )


# Of the tools --------------------------------------------------------------------


def environment_is_made(bench: Bench) -> Iterator[str]:
    """create_environment returns an Environment and passes on its arguments."""
    environment: Any = bench.make_environment(max_steps=3)
    if not isinstance(environment, Environment):
        yield f"create_environment returns {environment!r}, not an Environment."
    if environment.max_steps != 3 or environment.runner is not bench.runner:
        yield "create_environment drops max_steps or runner. Pass them on."


def tools_declared(bench: Bench) -> Iterator[str]:
    """The environment has tools, and each has a function."""
    tools = bench.made().tool_list
    if not tools:
        yield "The environment has no tools. Return at least one from tools()."
    if dead := [tool.name for tool in tools if tool.function is None]:
        yield f"Tools without a function: {', '.join(dead)}. Add one."


def tool_schemas_valid(bench: Bench) -> Iterator[str]:
    """Tools have a name, a description, and a valid JSON schema."""
    for tool in bench.made().tool_list:
        if not isinstance(tool.name, str) or not _TOOL_NAME.fullmatch(tool.name):
            yield (
                f"Tool {tool.name!r}: use up to 64 letters, digits, _ and -; model "
                "providers require that."
            )
        if not tool.description.strip():
            yield f"Tool '{tool.name}' has no description. Policies need one."
        try:
            check_schema(tool.parameters)
        except SchemaProblem as problem:
            yield f"Tool '{tool.name}': invalid JSON schema: {problem}."
        undeclared = sorted(tool.required - set(tool.properties))
        if undeclared:
            yield (
                f"Tool '{tool.name}' requires {', '.join(undeclared)} but has no such "
                "property. Add it."
            )


def tools_run(bench: Bench) -> Iterator[str]:
    """Tools answer a valid call, or reject it with ToolError."""
    untried = [probe.tool.name for probe in bench.probes if probe.arguments is None]
    if untried:
        bench.notes.append(
            f"Not tried, because no valid arguments were found: {', '.join(untried)}."
        )
    yield from _faults(
        bench,
        lambda probe: probe.raised,
        "raises {found} for {arguments}. Return an answer, or raise ToolError with a "
        "message for the agent.",
    )


def tool_results_are_json(bench: Bench) -> Iterator[str]:
    """Tools return JSON."""
    yield from _faults(
        bench,
        lambda probe: probe.not_json,
        "doesn't return JSON: {found}. Use text, finite numbers, lists and mappings.",
    )


def tools_answer_in_time(bench: Bench) -> Iterator[str]:
    """Tools answer within the time limit."""
    yield from _faults(
        bench,
        lambda probe: f"{bench.tool_timeout:g} s" if probe.hung else "",
        "doesn't answer within {found} for {arguments}. Add a time limit to it.",
    )


# Of the environment --------------------------------------------------------------


def environment_steps(bench: Bench) -> Iterator[str]:
    """The environment can be reset, stepped to the end and judged."""
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
            yield (
                f"outcome() returns ({success!r}, {outcome!r}). Return whether the "
                "task was solved, and how far it got, 0 to 1."
            )
        # Another rule checks that worlds can be closed.
        environment.world = None


def world_closes(bench: Bench) -> Iterator[str]:
    """A world can be closed after an episode, and another one opened."""
    environment = bench.made()
    with needs("environment_steps"):
        environment.reset_task(bench.task)
    environment.release()
    environment.reset_task(bench.task)
    environment.close()
    if environment.world is not None:
        yield "close() leaves the world open. Call super().close() in yours."


def environment_deterministic(bench: Bench) -> Iterator[str]:
    """The same seed and actions lead to the same observations."""
    healthy = [probe for probe in bench.probes if probe.healthy]
    scripts: list[list[Message]] = [[UNKNOWN_CALL, CLOSING], [CLOSING]]
    scripts += [[calling(p.tool.name, p.arguments or {})] for p in healthy]
    seen = [
        [observations(environment, script) for script in scripts]
        for environment in (bench.environment(), bench.environment())
    ]
    for script, first, second in zip(scripts, *seen, strict=True):
        if first != second:
            calls = script[0].get("tool_calls") or [{"function": {"name": "closing"}}]
            yield (
                f"Two episodes with the same seed differ after "
                f"'{calls[0]['function']['name']}'. Make worlds, tools and replies "
                "depend on the task only, not on the clock or global random state."
            )


def gymnasium_accepts(bench: Bench) -> Iterator[str]:
    """Gymnasium's own checker accepts the environment."""
    from gymnasium.utils.env_checker import check_env

    environment = bench.environment()
    try:
        check_env(environment, skip_render_check=True)
    except Exception as error:
        yield f"gymnasium's check_env says: {one_line(error)}."


# Of the rewards ------------------------------------------------------------------


def rewards_are_finite(bench: Bench) -> Iterator[str]:
    """broadcast_rewards returns one finite number for each step."""
    for trajectory in bench.episodes:
        rewards: Sequence[Any] = bench.scenario.broadcast_rewards(trajectory)
        if len(rewards) != len(trajectory.steps):
            yield (
                f"broadcast_rewards returns {len(rewards)} rewards for "
                f"{len(trajectory.steps)} steps. Return one for each."
            )
        if not all(_is_number(reward) for reward in rewards):
            yield f"broadcast_rewards returns {list(rewards)}. Return finite numbers."


def step_reward_is_finite(bench: Bench) -> Iterator[str]:
    """calculate_reward returns one finite number for a transition."""
    environment = bench.environment()
    environment.reset_task(bench.task)
    before = list(environment.messages)
    environment.act(UNKNOWN_CALL)
    reward: Any = bench.scenario.calculate_reward(
        before, UNKNOWN_CALL, list(environment.messages)
    )
    if not _is_number(reward):
        yield f"calculate_reward returns {reward!r}. Return a finite number."


def rewards_tell_good_from_bad(bench: Bench) -> Iterator[str]:
    """A solved episode of a task earns more than a failed one."""
    if any(rewards_are_finite(bench)):
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
            yield (
                f"Task '{task}': a solved episode earns {earned[True]:g} per step, a "
                f"failed one {earned[False]:g}. The policy can't learn from that: give "
                "solved episodes the higher reward."
            )
    if not pairs:
        bench.notes.append("Not shown: no solved episode was found.")


RULES: tuple[Callable[[Bench], Iterator[str]], ...] = (
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
"""All rules, in the order in which to fix them."""


def _faults(
    bench: Bench, fault: Callable[[ToolProbe], str], text: str
) -> Iterator[str]:
    """Describes the fault of each tool that has it."""
    for probe in bench.probes:
        if found := fault(probe):
            arguments = json.dumps(probe.arguments)
            about = text.format(found=found, arguments=arguments)
            yield f"Tool '{probe.tool.name}' {about}"


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _all_tasks(bench: Bench) -> list[Task]:
    return [task for split in SPLITS for task in bench.tasks[split]]


def _opening(task: Task) -> str:
    chat = [message for message in task.messages if isinstance(message, dict)]
    return "\n".join(str(m.get("content")) for m in chat if m.get("role") == "user")


def _face(task: Task) -> tuple[Any, ...]:
    # What can be compared of any task: worlds and goals may be objects of any kind.
    return (task.messages, task.best_steps, task.difficulty, task.tags)
