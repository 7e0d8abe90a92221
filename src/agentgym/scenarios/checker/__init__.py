"""Checks a scenario rule by rule, and explains how to fix what is wrong.

    agentgym scenarios check my_scenario:MyScenario

Or, in a test of yours:

    for result in agentgym.check_scenario(MyScenario()):
        assert result.ok, result.explanation

Tools really run, with arguments generated from their schemas.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentgym.errors import one_line
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.checker.bench import Bench, NotChecked
from agentgym.scenarios.checker.rules import RULES


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one rule.

    Attributes:
        rule: Name of the rule.
        ok: Whether the scenario follows it; None if that couldn't be checked because
            it breaks another rule.
        explanation: The rule if ok, else what is wrong and how to fix it.
    """

    rule: str
    ok: bool | None
    explanation: str


def check_scenario(
    scenario: Scenario, *, tool_timeout: float = 2.0
) -> list[CheckResult]:
    """Checks a scenario against every rule.

    Args:
        scenario: The scenario, with the options you will use.
        tool_timeout: Seconds after which a tool call counts as hanging.

    Returns:
        One result for each rule, in the order in which to fix them.
    """
    bench = Bench(scenario, tool_timeout)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [_check(rule, bench) for rule in RULES]
    finally:
        bench.close()


def _check(rule: Callable[[Bench], Iterator[str]], bench: Bench) -> CheckResult:
    bench.notes.clear()
    name = rule.__name__
    try:
        problem = next(rule(bench), "")
    except NotChecked as error:
        return CheckResult(name, None, f"Not checked. Fix {error} first.")
    except Exception as error:
        return CheckResult(name, False, f"The scenario raises {one_line(error)}.")
    if problem:
        return CheckResult(name, False, problem)
    kept = (rule.__doc__ or "").partition("\n")[0]
    return CheckResult(name, True, " ".join([kept, *bench.notes]))
