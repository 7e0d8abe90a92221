"""The shop's tools. They read and write the task's database.

Their definitions, as a model sees them, are in `data/tools.json`.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from agentgym.core.tools import ToolError
from agentgym.scenarios.customer_support.world import TODAY, World
from agentgym.scenarios.planned import read_tools

WRITING_TOOLS = frozenset(
    {
        "issue_refund",
        "create_replacement",
        "cancel_order",
        "update_address",
        "reset_password",
        "send_invoice",
        "update_subscription",
        "escalate",
    }
)
"""Tools that change the world: a wrong call can't be undone."""

_STOPWORDS = frozenset(
    "a about an and any are at be by can could do does for from get give has have "
    "hello help hey hi how i if in into is it its know like me my need of on or "
    "please so some tell thanks that the there this to us want way we what when "
    "where which who why will with would you your".split()
)


def lookup_order(world: World, order_id: str) -> dict[str, Any]:
    """Returns status, content, price, address and account of an order."""
    order, item = _order(world, order_id), _item(world, order_id)
    return {
        "order_id": order_id,
        "order_status": order["status"],
        "product": item["product"],
        "category": item["category"],
        "price": item["price"],
        "shipping_fee": order["shipping_fee"],
        "total": order["total"],
        "in_stock": bool(item["in_stock"]),
        "delivery_address": order["address"],
        "account_email": order["email"],
        "placed_on": order["placed_on"],
    }


def find_orders(world: World, email: str) -> dict[str, Any]:
    """Returns all orders of an account."""
    return {
        "customer": _account(world, email),
        "orders": world.records(
            "SELECT o.order_id, i.product, o.placed_on FROM orders o "
            "JOIN items i USING (order_id) WHERE o.email = ? ORDER BY o.placed_on DESC",
            email,
        ),
    }


def track_shipment(world: World, order_id: str) -> dict[str, Any]:
    """Returns the location of an order's parcel."""
    _order(world, order_id)
    found = world.record(
        "SELECT order_id, carrier, status AS parcel_status, location, expected_on "
        "FROM shipments WHERE order_id = ?",
        order_id,
    )
    return found or {"order_id": order_id, "parcel_status": "not_shipped_yet"}


def check_refund_policy(world: World, order_id: str, reason: str) -> dict[str, Any]:
    """Returns whether an order can be refunded, and the amount."""
    order = _order(world, order_id)
    item = _item(world, order_id)
    window = world.row(
        "SELECT window_days FROM policies WHERE category = ? AND reason = ?",
        item["category"],
        reason,
    )
    if window is None:
        raise ToolError(f"no policy for {item['category']} and reason {reason}")
    if order["delivered_on"] is None:
        return {"order_id": order_id, "eligible": False, "because": "not_delivered"}
    age = (
        datetime.date.fromisoformat(TODAY)
        - datetime.date.fromisoformat(order["delivered_on"])
    ).days
    result = {
        "order_id": order_id,
        "eligible": age <= window[0],
        "window_days": window[0],
        "days_since_delivery": age,
        "order_total": order["total"],
        "shipping_fee": order["shipping_fee"],
    }
    if result["eligible"]:
        # Customers who changed their mind pay the shipping; the shop pays otherwise.
        changed_mind = reason == "not_needed"
        result["refund_amount"] = item["price"] if changed_mind else order["total"]
    return result


def issue_refund(world: World, order_id: str, amount: float) -> dict[str, Any]:
    """Refunds an amount."""
    _order(world, order_id)
    paid = world.row("SELECT sum(amount) FROM payments WHERE order_id = ?", order_id)
    back = world.row("SELECT sum(amount) FROM refunds WHERE order_id = ?", order_id)
    left = ((paid and paid[0]) or 0.0) - ((back and back[0]) or 0.0)
    if amount <= 0 or amount > left + 0.005:
        raise ToolError(f"{amount} is not within the {left:.2f} paid for {order_id}")
    world.write("INSERT INTO refunds VALUES (?, ?)", order_id, round(amount, 2))
    return {"order_id": order_id, "refunded": round(amount, 2)}


def create_replacement(world: World, order_id: str) -> dict[str, Any]:
    """Sends an order's article again, if it is in stock."""
    _order(world, order_id)
    if not _item(world, order_id)["in_stock"]:
        return {"order_id": order_id, "replacement": "out_of_stock"}
    world.write("INSERT INTO replacements VALUES (?)", order_id)
    return {"order_id": order_id, "replacement": "on_its_way"}


def cancel_order(world: World, order_id: str) -> dict[str, Any]:
    """Cancels an order that hasn't been shipped."""
    return _change_unshipped(world, order_id, "cancelled", "status", "cancelled")


def update_address(world: World, order_id: str, address: str) -> dict[str, Any]:
    """Changes the delivery address of an order that hasn't been shipped."""
    return _change_unshipped(world, order_id, "address_updated", "address", address)


def reset_password(world: World, email: str) -> dict[str, Any]:
    """Sends a customer a password reset link."""
    _account(world, email)
    world.write("INSERT INTO password_resets VALUES (?)", email)
    return {"reset_link": "sent"}


def search_knowledge_base(world: World, query: str) -> dict[str, Any]:
    """Returns the help article that shares the most and rarest words with a query."""
    articles = world.rows("SELECT topic, title, body FROM knowledge_base")
    index = _index(tuple(articles))
    scores = [0.0] * len(articles)
    for word in _words(query):
        spelled = index.spelled(word)
        found = index.articles.get(spelled, ())
        for i in found:
            in_title = spelled in index.titles[i]
            scores[i] += (3.0 if in_title else 1.0) / len(found)
    best = max(range(len(articles)), key=lambda i: (scores[i], -i), default=None)
    if best is None or scores[best] <= 0:
        raise ToolError("no article found")
    topic, title, body = articles[best]
    return {"article": topic, "title": title, "body": body}


def check_payments(world: World, order_id: str) -> dict[str, Any]:
    """Returns an order's payments, and whether something was charged twice."""
    order = _order(world, order_id)
    amounts = [
        amount
        for (amount,) in world.rows(
            "SELECT amount FROM payments WHERE order_id = ? ORDER BY payment_id",
            order_id,
        )
    ]
    result: dict[str, Any] = {
        "order_id": order_id,
        "times_charged": len(amounts),
        "charged_twice": len(amounts) > 1,
        "total_charged": round(sum(amounts), 2),
        "shipping_fee": order["shipping_fee"],
    }
    if len(amounts) > 1:
        result["duplicate_amount"] = amounts[-1]
    return result


def get_ticket(world: World, ticket_id: str) -> dict[str, Any]:
    """Returns the state of a support ticket."""
    ticket = world.record(
        "SELECT ticket_id, subject, status AS ticket_status, opened_on FROM tickets "
        "WHERE ticket_id = ?",
        ticket_id,
    )
    if ticket is None:
        raise ToolError(f"no ticket {ticket_id}")
    return ticket


def send_invoice(world: World, order_id: str, email: str) -> dict[str, Any]:
    """Sends the invoice of an order by e-mail."""
    _order(world, order_id)
    world.write("INSERT INTO invoices_sent VALUES (?, ?)", order_id, email)
    return {"order_id": order_id, "invoice": "sent"}


def update_subscription(
    world: World, email: str, channel: str, action: str
) -> dict[str, Any]:
    """Enables or disables marketing through one channel."""
    _account(world, email)
    world.write(
        "INSERT INTO subscriptions VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET subscribed = excluded.subscribed",
        email,
        channel,
        int(action == "subscribe"),
    )
    return {"channel": channel, "subscribed": action == "subscribe"}


def escalate(world: World, reason: str) -> dict[str, Any]:
    """Hands the conversation to a colleague."""
    world.write("INSERT INTO escalations VALUES (?)", reason)
    return {"handed_over": True, "reason": reason}


def _order(world: World, order_id: str) -> dict[str, Any]:
    order = world.record("SELECT * FROM orders WHERE order_id = ?", order_id)
    if order is None:
        raise ToolError(f"no order {order_id}")
    return order


def _item(world: World, order_id: str) -> dict[str, Any]:
    item = world.record("SELECT * FROM items WHERE order_id = ?", order_id)
    if item is None:
        raise ToolError(f"order {order_id} has no items")
    return item


def _account(world: World, email: str) -> str:
    """The name of the customer with an account."""
    customer = world.row("SELECT name FROM customers WHERE email = ?", email)
    if customer is None:
        raise ToolError(f"no account with the e-mail address {email}")
    return str(customer[0])


def _change_unshipped(
    world: World, order_id: str, done: str, column: str, value: str
) -> dict[str, Any]:
    status = _order(world, order_id)["status"]
    if status != "processing":
        return {"order_id": order_id, done: False, "order_status": status}
    assert column in ("status", "address")
    world.write(f"UPDATE orders SET {column} = ? WHERE order_id = ?", value, order_id)
    return {"order_id": order_id, done: True}


@lru_cache(maxsize=1024)
def _words(text: str) -> frozenset[str]:
    # "gift cards" must find "gift card".
    words = re.findall(r"[a-z0-9]+", text.lower())
    stems = (w[:-1] if len(w) > 3 and w.endswith("s") else w for w in words)
    return frozenset(w for w in stems if w not in _STOPWORDS)


class _Index:
    """The words of a knowledge base."""

    def __init__(self, articles: Sequence[tuple[str, str, str]]) -> None:
        self.titles = [_words(title) for _, title, _ in articles]
        self.articles: dict[str, list[int]] = {}
        """Positions of the articles that contain a word."""
        for i, (_, _, body) in enumerate(articles):
            for word in self.titles[i] | _words(body):
                self.articles.setdefault(word, []).append(i)
        self._respelled: dict[str, str] = {}

    def spelled(self, word: str) -> str:
        """The word itself if known, otherwise the most similar known word."""
        if word in self.articles:
            return word
        known = self._respelled.get(word)
        if known is None:
            alike = sorted(w for w in self.articles if w[0] == word[0])
            near = difflib.get_close_matches(word, alike, n=1, cutoff=0.8)
            if len(self._respelled) > 10_000:
                self._respelled.clear()
            known = self._respelled[word] = near[0] if near else word
        return known


@lru_cache(maxsize=2)
def _index(articles: tuple[tuple[str, str, str], ...]) -> _Index:
    return _Index(articles)


TOOLS = read_tools("agentgym.scenarios.customer_support", globals())
