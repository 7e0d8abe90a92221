"""The customers' intents: the request in their words, and the plan that serves it.

The plan depends on the world: is the order still in the warehouse, does the policy
cover the case, is the parcel lost?
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentgym.scenarios.customer_support.language import ENTITIES, Speaker
from agentgym.scenarios.customer_support.world import REFUND_WINDOWS, TODAY
from agentgym.scenarios.planned import Milestone
from agentgym.scenarios.wording import closed


@dataclass(slots=True)
class Issue:
    """One request of the customer.

    Attributes:
        plan: The steps after the order number or e-mail address is known.
        order_id: The order it is about, if any.
        needs: The value that the plan needs first: "order_id" or "email".
    """

    intent: str
    plan: list[Milestone]
    order_id: str = ""
    needs: str = ""


@dataclass(slots=True)
class Draft:
    """A draft of a task: its customer and the rows of its world."""

    speaker: Speaker
    email: str
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    mentioned: str = ""
    """Text after the request that is needed to understand it."""
    complete: bool = False
    """Whether requests must be complete (true for two requests in one message)."""

    def add(self, table: str, *values: Any) -> None:
        """Adds a row of the world."""
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
        delivered = days_ago(delivered_days) if status == "delivered" else None
        placed = days_ago(delivered_days + rng.randint(3, 9))
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
                rng.choice(ENTITIES["carriers"]),
                parcel,
                speaker.address().split(", ")[1],
                days_ago(-rng.randint(1, 4)),
            )
        return order_id, product, price, total, category


def days_ago(days: int) -> str:
    """A date of the shop's calendar."""
    day = datetime.date.fromisoformat(TODAY) - datetime.timedelta(days=days)
    return day.isoformat()


Intent = Callable[[Draft], tuple[Issue, str]]


def _about_order(
    draft: Draft,
    intent: str,
    phrase: str,
    order: tuple[str, str, float, float, str],
    plan: list[Milestone],
    **slots: str,
) -> tuple[Issue, str]:
    """A request about an order, sometimes without its number."""
    speaker, rng = draft.speaker, draft.speaker.rng
    order_id, product, *_ = order
    slots["product"] = product
    if draft.complete or rng.random() < 0.72:
        slots |= {"order": order_id, "email": draft.email}
        request = _request(draft, f"{phrase}/id", f"{phrase}/noid", **slots)
        return Issue(intent, plan, order_id), request
    request = _request(draft, f"{phrase}/noid", **slots)
    if rng.random() < 0.4 and product in request:
        draft.order(status="delivered", delivered_days=rng.randint(20, 60))
    if rng.random() < 0.5:
        draft.mentioned = speaker.say("my_email", email=draft.email)
    else:
        key = rng.choice(["reply_order", "no_order_but_email"])
        draft.answers["order_id"] = speaker.say(key, order=order_id, email=draft.email)
        draft.answers["email"] = speaker.say("reply_email", email=draft.email)
    return Issue(intent, plan, order_id, needs="order_id"), request


def _request(draft: Draft, key: str, again: str = "", **slots: str) -> str:
    """A request; most customers repeat a single one in different words."""
    speaker = draft.speaker
    request = speaker.say(key, **slots)
    if draft.complete or speaker.rng.random() < 0.25:
        return request
    return f"{closed(request)} {speaker.say(again or key, **slots)}"


def _track(draft: Draft) -> tuple[Issue, str]:
    parcel = draft.speaker.rng.choice(
        ["in_transit", "out_for_delivery", "delivered", "lost", "lost"]
    )
    order = draft.order(status="shipped", parcel=parcel)
    plan = [_call("track_shipment", order_id=order[0])]
    if parcel == "lost":
        plan.append(_call("create_replacement", order_id=order[0]))
    return _about_order(draft, "track", "track", order, plan)


def _details(draft: Draft) -> tuple[Issue, str]:
    status = draft.speaker.rng.choice(["processing", "shipped", "delivered"])
    order = draft.order(status=status)
    plan = [_call("lookup_order", order_id=order[0])]
    return _about_order(draft, "details", "details", order, plan)


def _refund(reason: str) -> Intent:
    def make(draft: Draft) -> tuple[Issue, str]:
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


def _redate(draft: Draft, order_id: str, delivered_days: int) -> None:
    draft.rows["orders"] = [
        (*row[:3], days_ago(delivered_days + 5), days_ago(delivered_days), *row[5:])
        if row[0] == order_id
        else row
        for row in draft.rows["orders"]
    ]


def _replacement(draft: Draft) -> tuple[Issue, str]:
    in_stock = draft.speaker.rng.random() < 0.6
    order = draft.order(in_stock=in_stock)
    plan = [_call("create_replacement", order_id=order[0])]
    if not in_stock:
        plan.append(_call("escalate", reason="out_of_stock"))
    return _about_order(draft, "replacement", "replacement", order, plan)


def _cancel(draft: Draft) -> tuple[Issue, str]:
    open_ = draft.speaker.rng.random() < 0.6
    order = draft.order(status="processing" if open_ else "shipped")
    plan = [_call("cancel_order", order_id=order[0])]
    if not open_:
        plan.append(_call("escalate", reason="already_shipped"))
    return _about_order(draft, "cancel", "cancel", order, plan)


def _address(draft: Draft) -> tuple[Issue, str]:
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
        request = _request(draft, "address_missing/id", order=order[0])
        return Issue("address", plan, order[0]), request
    return _about_order(draft, "address", "address", order, plan, address=address)


def _double_charge(draft: Draft) -> tuple[Issue, str]:
    twice = draft.speaker.rng.random() < 0.6
    order = draft.order(charges=2 if twice else 1)
    plan = [_call("check_payments", order_id=order[0])]
    if twice:
        plan.append(_call("issue_refund", order_id=order[0], amount=order[3]))
    return _about_order(draft, "double_charge", "double_charge", order, plan)


def _invoice(draft: Draft) -> tuple[Issue, str]:
    speaker = draft.speaker
    order = draft.order()
    order_id, product, *_ = order
    plan = [_call("send_invoice", order_id=order_id, email=draft.email)]
    kind = "email"
    if speaker.rng.random() < 0.4:
        kind = "id"
        plan.insert(0, _call("lookup_order", order_id=order_id))
    slots = {"order": order_id, "email": draft.email, "product": product}
    request = _request(draft, f"invoice/{kind}", **slots)
    return Issue("invoice", plan, order_id), request


def _password(draft: Draft) -> tuple[Issue, str]:
    speaker = draft.speaker
    plan = [_call("reset_password", email=draft.email)]
    if draft.complete or speaker.rng.random() < 0.75:
        request = _request(
            draft, "password/email", "password/noemail", email=draft.email
        )
        return Issue("password", plan), request
    draft.answers["email"] = speaker.say("reply_email", email=draft.email)
    request = _request(draft, "password/noemail")
    return Issue("password", plan, needs="email"), request


def _subscription(draft: Draft) -> tuple[Issue, str]:
    rng = draft.speaker.rng
    channel = rng.choice(["newsletter", "sms", "phone"])
    wanted = rng.random() < 0.4
    verb = "subscribe" if wanted else "unsubscribe"
    plan = [
        _call("update_subscription", email=draft.email, channel=channel, action=verb)
    ]
    request = _request(draft, f"{verb}_{channel}/email", email=draft.email)
    return Issue("subscription", plan), request


def _ticket(draft: Draft) -> tuple[Issue, str]:
    speaker, rng = draft.speaker, draft.speaker.rng
    ticket_id = speaker.ticket_id()
    status = rng.choice(["in_progress", "solved", "overdue", "overdue"])
    draft.add("tickets", ticket_id, "question", status, days_ago(rng.randint(2, 20)))
    plan = [_call("get_ticket", ticket_id=ticket_id)]
    if status == "overdue":
        plan.append(_call("escalate", reason="overdue_ticket"))
    request = _request(draft, "ticket/id", ticket=ticket_id)
    return Issue("ticket", plan), request


def _how_to(draft: Draft) -> tuple[Issue, str]:
    article = draft.speaker.article()
    question = draft.speaker.rng.choice(article.questions)
    plan = [_call("search_knowledge_base", article=article.topic)]
    return Issue("how_to", plan), draft.speaker.expand(question)


def _escalation(phrase: str, reason: str) -> Intent:
    def make(draft: Draft) -> tuple[Issue, str]:
        product = draft.speaker.product()[0]
        request = _request(draft, phrase, product=product)
        return Issue(phrase, [_call("escalate", reason=reason)]), request

    return make


def _thanks(draft: Draft) -> tuple[Issue, str]:
    product = draft.speaker.product()[0]
    return Issue("thanks", []), _request(draft, "thanks", product=product)


INTENTS: tuple[Intent, ...] = (
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

# Requests that can share a message with another one.
PAIRABLE: dict[str, Intent] = {
    "track": _track,
    "cancel": _cancel,
    "password": _password,
    "ticket": _ticket,
}


def _call(tool: str, **arguments: Any) -> Milestone:
    return Milestone(tool, arguments)
