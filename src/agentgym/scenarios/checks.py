"""Tells the author of a scenario, rule by rule, what is wrong with it.

    agentgym scenarios check my_scenario:MyScenario

Tools really run, with arguments that are made up from their schemas.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from agentgym.errors import one_line
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.probing import Bench, NotChecked
from agentgym.scenarios.rules import RULES


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one rule says of a scenario.

    Attributes:
        rule: Name of the rule.
        ok: Whether it is kept; None if it could not be checked, because the scenario
            breaks another rule that this one builds on.
        explanation: The rule if it is kept, else what is wrong and what to do.
    """

    rule: str
    ok: bool | None
    explanation: str


def check_scenario(
    scenario: Scenario, *, tool_timeout: float = 2.0
) -> list[CheckResult]:
    """Checks a scenario against every rule.

    Args:
        scenario: The scenario, made with the options that it will be used with.
        tool_timeout: Seconds after which a tool counts as hanging.

    Returns:
        One result for each rule, in the order in which to mend them.
    """
    bench = Bench(scenario, tool_timeout)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [_check(rule, bench) for rule in RULES]
    finally:
        bench.close()


def _check(rule: Callable[[Bench], str], bench: Bench) -> CheckResult:
    bench.notes.clear()
    name = rule.__name__
    try:
        problem = rule(bench)
    except NotChecked as error:
        return CheckResult(name, None, f"Not checked. First mend {error}.")
    except Exception as error:
        return CheckResult(name, False, f"The scenario raises {one_line(error)}.")
    if problem:
        return CheckResult(name, False, problem)
    kept = (rule.__doc__ or "").partition("\n")[0]
    return CheckResult(name, True, " ".join([kept, *bench.notes]))
