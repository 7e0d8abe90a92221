"""Makes tasks: a customer with one or two requests, a world, and the right course.

Each request (`Issue`) carries a plan: the calls, in order, that serve it in this
world. The plan is found by looking at the world, as a careful colleague would: is the
order still in the warehouse, does the policy cover it, is the parcel lost?
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentgym.core.task import Difficulty, Split, Task
from agentgym.scenarios.customer_support.knowledge import CARRIERS
from agentgym.scenarios.customer_support.language import Speaker
from agentgym.scenarios.customer_support.tools import TOOLS, WRITING_TOOLS
from agentgym.scenarios.customer_support.world import (
    REFUND_WINDOWS,
    TODAY,
    Rows,
    World,
)

SYSTEM_PROMPT = (
    "You work in the customer service of an online shop. Solve the customer's request "
    "with the tools. Ask if something is missing. Close with a short answer."
)


@dataclass(frozen=True, slots=True)
class Milestone:
    """One thing to do: call a tool with these arguments, or ask for something."""

    tool: str
    arguments: tuple[tuple[str, Any], ...] = ()
    ask: str = ""


@dataclass(slots=True)
class Issue:
    """One request of the customer.

    Attributes:
        plan: What to do, once the order number or the e-mail address is known.
        order_id: The order it is about, if any.
        needs: What must be known before the plan can start: "order_id" or "email".
    """

    intent: str
    plan: list[Milestone]
    order_id: str = ""
    needs: str = ""


@dataclass(slots=True)
class Goal:
    """How an episode is judged.

    Attributes:
        answers: What the customer says when asked for "order_id", "email", "address".
    """

    issues: list[Issue]
    email: str
    answers: dict[str, str]


class ShopSpec:
    """From which a task's world is built, as often as it is needed."""

    def __init__(self, rows: Rows, issues: list[Issue]) -> None:
        self.rows = rows
        self.issues = issues

    @cached_property
    def image(self) -> bytes:
        """The database that an episode opens."""
        return World.image(self.rows)

    @cached_property
    def expected_effects(self) -> frozenset[tuple[Any, ...]]:
        """What the world looks like after the right course, found by taking it."""
        functions = {tool.name: tool.function for tool in TOOLS}
        world = World(self.image)
        for milestone in (m for issue in self.issues for m in issue.plan):
            function = functions.get(milestone.tool)
            if function is not None and milestone.tool in WRITING_TOOLS:
                function(world, **dict(milestone.arguments))
        effects = world.effects()
        world.close()
        return effects


@dataclass(slots=True)
class _Draft:
    """A task in the making."""

    speaker: Speaker
    email: str
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    mentioned: str = ""
    """Text that follows the request and is needed to understand it."""
    complete: bool = False
    """Whether requests must say all that is needed (two at once are enough to do)."""

    def add(self, table: str, *values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def order(
        self,
        *,
        status: str = "delivered",
        delivered_days: int = 5,
        parcel: str = "",
        in_stock: bool = True,
        charges: int = 1,
        owner: str = "",
    ) -> tuple[str, str, float, float, str]:
        """Adds an order; returns its number, product, price, total and category."""
        rng, speaker = self.speaker.rng, self.speaker
        order_id = speaker.order_id()
        product, category = speaker.product()
        price = round(rng.uniform(8, 400), 2)
        fee = rng.choice([2.95, 3.9, 4.9, 5.95, 7.5])
        total = round(price + fee, 2)
        delivered = _days_ago(delivered_days) if status == "delivered" else None
        placed = _days_ago(delivered_days + rng.randint(3, 9))
        self.add(
            "orders",
            order_id,
            owner or self.email,
            status,
            placed,
            delivered,
            speaker.address(),
            fee,
            total,
        )
        self.add("items", order_id, product, category, price, int(in_stock))
        for number in range(charges):
            self.add("payments", f"P-{order_id}-{number + 1}", order_id, total)
        if status != "processing":
            parcel = parcel or ("delivered" if status == "delivered" else "in_transit")
            self.add(
                "shipments",
                order_id,
                rng.choice(CARRIERS),
                parcel,
                speaker.address().split(", ")[1],
                _days_ago(-rng.randint(1, 4)),
            )
        return order_id, product, price, total, category


def make_task(split: Split, rng: random.Random, task_id: str) -> Task:
    """Draws one task of a split."""
    speaker = Speaker(split, rng)
    draft = _Draft(speaker, speaker.email())
    draft.add("customers", draft.email, speaker.name())
    if rng.random() < 0.1:
        draft.complete = True
        first, second = rng.sample(list(_PAIRABLE), 2)
        issue, request = _PAIRABLE[first](draft)
        other, more = _PAIRABLE[second](draft)
        joint = speaker.say("second_issue")
        request = f"{_closed(request)} {joint} {_lower_first(more)}"
        issues = [issue, other]
    else:
        issue, request = rng.choice(_INTENTS)(draft)
        issues = [issue]
    text = _dress(draft, issues, request)
    best = sum(len(i.plan) + _preparation(i, draft) for i in issues) + 1
    return Task(
        id=task_id,
        messages=(
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": text},
        ),
        world=ShopSpec(draft.rows, issues),
        goal=Goal(issues, draft.email, draft.answers),
        best_steps=best,
        difficulty=_difficulty(issues, best),
        split=split,
        tags=tuple(i.intent for i in issues),
    )


def _difficulty(issues: list[Issue], best: int) -> Difficulty:
    if len(issues) > 1 or best >= 4:
        return "hard"
    return "medium" if best == 3 else "easy"


def _preparation(issue: Issue, draft: _Draft) -> int:
    """Decisions until what the plan needs is known."""
    if issue.needs == "order_id":
        if "order_id" not in draft.answers:
            return 1  # find_orders by the address in the message
        return 1 if issue.order_id in draft.answers["order_id"] else 2
    return 1 if issue.needs == "email" else 0


def _dress(draft: _Draft, issues: list[Issue], request: str) -> str:
    """Adds greeting, small talk, distractors and closing to the request."""
    speaker, rng = draft.speaker, draft.speaker.rng
    pieces = [_closed(request), draft.mentioned]
    orders = [issue.order_id for issue in issues if issue.order_id]
    shown = [order for order in orders if order in request]
    # Two requests with their numbers are enough to keep apart.
    alone = len(issues) == 1
    if alone and shown and rng.random() < 0.35:
        other = speaker.near(shown[0]) if rng.random() < 0.4 else speaker.order_id()
        _add_bystander(draft, other)
        pieces.append(speaker.say("other_order", other_order=other))
    elif alone and draft.email in request + draft.mentioned and rng.random() < 0.35:
        other_email = speaker.email()
        draft.add("customers", other_email, speaker.name())
        pieces.append(speaker.say("other_email", other_email=other_email))
    if rng.random() < 0.4:
        filler = speaker.say(
            "filler",
            # Beside an order number stands what may be taken for one.
            zip=speaker.order_id() if alone and shown else speaker.postcode(),
            phone=speaker.phone(),
            name=speaker.name(),
        )
        pieces.append(filler)
    if rng.random() < 0.4:
        pieces.append(speaker.say("closing"))
    if rng.random() < 0.4:
        pieces.insert(0, speaker.say("greeting"))
    return " ".join(piece for piece in pieces if piece)


def _add_bystander(draft: _Draft, order_id: str) -> None:
    """Adds an order that exists and is not the one to act on."""
    number, *_ = draft.order(status="delivered", delivered_days=3)
    for table in ("orders", "items", "shipments", "payments"):
        draft.rows[table] = [
            tuple(order_id if value == number else value for value in row)
            for row in draft.rows[table]
        ]


def _days_ago(days: int) -> str:
    day = datetime.date.fromisoformat(TODAY) - datetime.timedelta(days=days)
    return day.isoformat()


def _closed(text: str) -> str:
    """Ends a sentence that something follows."""
    text = text.rstrip()
    return text if text[-1:] in ".!?" else f"{text}."


def _lower_first(text: str) -> str:
    word = text.split(" ", 1)[0]
    keep = word.startswith("I'") or word == "I" or not word.rstrip(",.").isalpha()
    return text if keep else text[:1].lower() + text[1:]


def _call(tool: str, **arguments: Any) -> Milestone:
    return Milestone(tool, tuple(arguments.items()))


# --- What customers want ---------------------------------------------------------

Intent = Callable[[_Draft], tuple[Issue, str]]


def _about_order(
    draft: _Draft,
    intent: str,
    phrase: str,
    order: tuple[str, str, float, float, str],
    plan: list[Milestone],
    **slots: str,
) -> tuple[Issue, str]:
    """Words a request about an order, sometimes without saying which."""
    speaker, rng = draft.speaker, draft.speaker.rng
    order_id, product, *_ = order
    if draft.complete or rng.random() < 0.72:
        request = speaker.say(
            f"{phrase}/id", order=order_id, product=product, email=draft.email, **slots
        )
        request = _in_other_words(
            draft, request, f"{phrase}/noid", product=product, **slots
        )
        return Issue(intent, plan, order_id), request
    request = speaker.say(f"{phrase}/noid", product=product, **slots)
    request = _in_other_words(
        draft, request, f"{phrase}/noid", product=product, **slots
    )
    if rng.random() < 0.4 and product in request:
        draft.order(status="delivered", delivered_days=rng.randint(20, 60))
    if rng.random() < 0.5:
        draft.mentioned = speaker.say("my_email", email=draft.email)
    else:
        key = rng.choice(["reply_order", "no_order_but_email"])
        draft.answers["order_id"] = speaker.say(key, order=order_id, email=draft.email)
        draft.answers["email"] = speaker.say("reply_email", email=draft.email)
    return Issue(intent, plan, order_id, needs="order_id"), request


def _in_other_words(draft: _Draft, request: str, key: str, **slots: str) -> str:
    """A request; most customers put a single one a second time, differently."""
    if draft.complete or draft.speaker.rng.random() < 0.25:
        return request
    return f"{_closed(request)} {draft.speaker.say(key, **slots)}"


def _track(draft: _Draft) -> tuple[Issue, str]:
    parcel = draft.speaker.rng.choice(
        ["in_transit", "out_for_delivery", "delivered", "lost", "lost"]
    )
    order = draft.order(status="shipped", parcel=parcel)
    plan = [_call("track_shipment", order_id=order[0])]
    if parcel == "lost":
        plan.append(_call("create_replacement", order_id=order[0]))
    return _about_order(draft, "track", "track", order, plan)


def _details(draft: _Draft) -> tuple[Issue, str]:
    status = draft.speaker.rng.choice(["processing", "shipped", "delivered"])
    order = draft.order(status=status)
    plan = [_call("lookup_order", order_id=order[0])]
    return _about_order(draft, "details", "details", order, plan)


def _refund(reason: str) -> Intent:
    def make(draft: _Draft) -> tuple[Issue, str]:
        rng = draft.speaker.rng
        covered = rng.random() < 0.6
        order = draft.order(delivered_days=rng.randint(1, 12))
        order_id, _, price, total, category = order
        if not covered:
            days = REFUND_WINDOWS[category][reason] + rng.randint(1, 40)
            _redate(draft, order_id, days)
        plan = [_call("check_refund_policy", order_id=order_id, reason=reason)]
        if covered:
            amount = price if reason == "not_needed" else total
            plan.append(_call("issue_refund", order_id=order_id, amount=amount))
        else:
            plan.append(_call("escalate", reason="refund_not_covered"))
        return _about_order(draft, "refund", f"refund_{reason}", order, plan)

    return make


def _redate(draft: _Draft, order_id: str, delivered_days: int) -> None:
    draft.rows["orders"] = [
        (*row[:3], _days_ago(delivered_days + 5), _days_ago(delivered_days), *row[5:])
        if row[0] == order_id
        else row
        for row in draft.rows["orders"]
    ]


def _replacement(draft: _Draft) -> tuple[Issue, str]:
    in_stock = draft.speaker.rng.random() < 0.6
    order = draft.order(in_stock=in_stock)
    plan = [_call("create_replacement", order_id=order[0])]
    if not in_stock:
        plan.append(_call("escalate", reason="out_of_stock"))
    return _about_order(draft, "replacement", "replacement", order, plan)


def _cancel(draft: _Draft) -> tuple[Issue, str]:
    open_ = draft.speaker.rng.random() < 0.6
    order = draft.order(status="processing" if open_ else "shipped")
    plan = [_call("cancel_order", order_id=order[0])]
    if not open_:
        plan.append(_call("escalate", reason="already_shipped"))
    return _about_order(draft, "cancel", "cancel", order, plan)


def _address(draft: _Draft) -> tuple[Issue, str]:
    speaker, rng = draft.speaker, draft.speaker.rng
    open_ = rng.random() < 0.6
    order = draft.order(status="processing" if open_ else "shipped")
    address = speaker.address()
    plan = [_call("update_address", order_id=order[0], address=address)]
    if not open_:
        plan.append(_call("escalate", reason="already_shipped"))
    if not draft.complete and rng.random() < 0.25:
        plan.insert(0, Milestone("", ask="address"))
        draft.answers["address"] = speaker.say("reply_address", address=address)
        request = speaker.say("address_missing/id", order=order[0])
        request = _in_other_words(draft, request, "address_missing/id", order=order[0])
        return Issue("address", plan, order[0]), request
    return _about_order(draft, "address", "address", order, plan, address=address)


def _double_charge(draft: _Draft) -> tuple[Issue, str]:
    twice = draft.speaker.rng.random() < 0.6
    order = draft.order(charges=2 if twice else 1)
    plan = [_call("check_payments", order_id=order[0])]
    if twice:
        plan.append(_call("issue_refund", order_id=order[0], amount=order[3]))
    return _about_order(draft, "double_charge", "double_charge", order, plan)


def _invoice(draft: _Draft) -> tuple[Issue, str]:
    speaker = draft.speaker
    order = draft.order()
    order_id, product, *_ = order
    plan = [_call("send_invoice", order_id=order_id, email=draft.email)]
    kind = "email"
    if speaker.rng.random() < 0.4:
        kind = "id"
        plan.insert(0, _call("lookup_order", order_id=order_id))
    slots = {"order": order_id, "email": draft.email, "product": product}
    request = speaker.say(f"invoice/{kind}", **slots)
    request = _in_other_words(draft, request, f"invoice/{kind}", **slots)
    return Issue("invoice", plan, order_id), request


def _password(draft: _Draft) -> tuple[Issue, str]:
    speaker = draft.speaker
    plan = [_call("reset_password", email=draft.email)]
    if draft.complete or speaker.rng.random() < 0.75:
        request = speaker.say("password/email", email=draft.email)
        request = _in_other_words(draft, request, "password/noemail")
        return Issue("password", plan), request
    draft.answers["email"] = speaker.say("reply_email", email=draft.email)
    request = speaker.say("password/noemail")
    request = _in_other_words(draft, request, "password/noemail")
    return Issue("password", plan, needs="email"), request


def _subscription(draft: _Draft) -> tuple[Issue, str]:
    rng = draft.speaker.rng
    channel = rng.choice(["newsletter", "sms", "phone"])
    wanted = rng.random() < 0.4
    verb = "subscribe" if wanted else "unsubscribe"
    plan = [
        _call("update_subscription", email=draft.email, channel=channel, action=verb)
    ]
    key = f"{verb}_{channel}/email"
    request = draft.speaker.say(key, email=draft.email)
    request = _in_other_words(draft, request, key, email=draft.email)
    return Issue("subscription", plan), request


def _ticket(draft: _Draft) -> tuple[Issue, str]:
    speaker, rng = draft.speaker, draft.speaker.rng
    ticket_id = speaker.ticket_id()
    status = rng.choice(["in_progress", "solved", "overdue", "overdue"])
    draft.add("tickets", ticket_id, "question", status, _days_ago(rng.randint(2, 20)))
    plan = [_call("get_ticket", ticket_id=ticket_id)]
    if status == "overdue":
        plan.append(_call("escalate", reason="overdue_ticket"))
    request = speaker.say("ticket/id", ticket=ticket_id)
    request = _in_other_words(draft, request, "ticket/id", ticket=ticket_id)
    return Issue("ticket", plan), request


def _how_to(draft: _Draft) -> tuple[Issue, str]:
    article = draft.speaker.article()
    question = draft.speaker.rng.choice(article.questions)
    plan = [_call("search_knowledge_base", article=article.topic)]
    return Issue("how_to", plan), draft.speaker.expand(question)


def _escalation(phrase: str, reason: str) -> Intent:
    def make(draft: _Draft) -> tuple[Issue, str]:
        product = draft.speaker.product()[0]
        request = draft.speaker.say(phrase, product=product)
        request = _in_other_words(draft, request, phrase, product=product)
        return Issue(phrase, [_call("escalate", reason=reason)]), request

    return make


def _thanks(draft: _Draft) -> tuple[Issue, str]:
    product = draft.speaker.product()[0]
    request = draft.speaker.say("thanks", product=product)
    return Issue("thanks", []), _in_other_words(
        draft, request, "thanks", product=product
    )


_INTENTS: tuple[Intent, ...] = (
    _track,
    _track,
    _details,
    _refund("damaged"),
    _refund("wrong_item"),
    _refund("not_needed"),
    _replacement,
    _cancel,
    _address,
    _double_charge,
    _invoice,
    _password,
    _subscription,
    _ticket,
    _how_to,
    _how_to,
    _escalation("human", "human_requested"),
    _escalation("legal", "legal_threat"),
    _escalation("safety", "safety_hazard"),
    _thanks,
)

# Requests that make sense beside another one in the same message.
_PAIRABLE: dict[str, Intent] = {
    "track": _track,
    "cancel": _cancel,
    "password": _password,
    "ticket": _ticket,
}
