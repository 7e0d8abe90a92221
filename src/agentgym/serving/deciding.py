"""Turns requests into decisions of a policy, and those into completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Policy, Sampling
from agentgym.serving.answers import Completion, complete
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import ChatRequest, check_length


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision and the completion that the client receives."""

    decision: Decision
    completion: Completion


def answer_all(
    policy: Policy,
    requests: Sequence[ChatRequest],
    sampling: Sampling = GREEDY,
    decisions: Sequence[DecisionRequest] | None = None,
) -> list[Answer | Exception]:
    """Answers all requests in one batch.

    Args:
        policy: The policy that decides.
        requests: The clients' requests.
        sampling: How decisions are sampled. If neither it nor the request has an `rng`,
            equal requests get equal answers and are decided once.
        decisions: The requests for the policy; made from `requests` by default.

    Returns:
        One answer per request, or the error to send instead.
    """
    asked = decisions or [request.to_decision() for request in requests]
    results: list[Answer | Exception | None] = []
    for request in requests:
        try:
            check_length(request, policy.count_tokens, policy.context_length)
            results.append(None)
        except ApiError as error:
            results.append(error)
    fit = [i for i, result in enumerate(results) if result is None]
    drawn = {i for i in fit if (asked[i].rng or sampling.rng) is not None}
    same = {i: (i,) if i in drawn else requests[i].question for i in fit}
    first = {question: i for i, question in reversed(same.items())}
    made = policy.decide([asked[i] for i in first.values()], sampling)
    by_question = dict(zip(first, made, strict=True))
    for i, question in same.items():
        decision = by_question[question]
        try:
            completion = complete(requests[i], decision, policy.count_tokens)
            results[i] = Answer(decision, completion)
        except ApiError as error:
            results[i] = error
    return [result for result in results if result is not None]
