"""The shop: its tools, its tasks, its customer and its judge."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym.core.task import SPLITS, Split, Task
from agentgym.core.tools import FailureKind, ToolCall, ToolError, ToolRunner, tool_map
from agentgym.scenarios.checker import check_scenario
from agentgym.scenarios.customer_support import tools as shop
from agentgym.scenarios.customer_support.language import ARTICLES, ENTITIES, PRODUCTS
from agentgym.scenarios.customer_support.scenario import (
    CustomerSupport,
    CustomerSupportEnvironment,
)
from agentgym.scenarios.customer_support.world import REFUND_WINDOWS, World
from agentgym.scenarios.planned import Milestone
from agentgym.scenarios.wording import split_of

ADA, BOB = "ada@example.com", "bob@example.com"
HOME = "1 Mill Road, Bath"

# TODAY is 2026-06-15. 10001 can be refunded for every reason, 10002 for none, 10003 is
# in the warehouse, 10004 is lost, 10005 was charged twice and is out of stock.
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "customers": [(ADA, "Ada Baker"), (BOB, "Bob Walsh")],
    "orders": [
        ("10001", ADA, "delivered", "2026-06-05", "2026-06-10", HOME, 4.9, 54.9),
        ("10002", ADA, "delivered", "2026-01-05", "2026-01-10", HOME, 4.9, 54.9),
        ("10003", ADA, "processing", "2026-06-14", None, HOME, 3.9, 23.9),
        ("10004", ADA, "shipped", "2026-06-12", None, HOME, 3.9, 23.9),
        ("10005", BOB, "delivered", "2026-06-01", "2026-06-08", HOME, 5.0, 15.0),
    ],
    "items": [
        ("10001", "teapot", "kitchen", 50.0, 1),
        ("10002", "teapot", "kitchen", 50.0, 1),
        ("10003", "kite", "toys", 20.0, 1),
        ("10004", "kite", "toys", 20.0, 1),
        ("10005", "sun hat", "clothing", 10.0, 0),
    ],
    "shipments": [
        ("10001", "GLS", "delivered", "Bath", "2026-06-10"),
        ("10004", "DHL", "lost", "Leeds", "2026-06-14"),
    ],
    "payments": [
        ("P-1", "10001", 54.9),
        ("P-2", "10002", 54.9),
        ("P-3", "10003", 23.9),
        ("P-4", "10004", 23.9),
        ("P-5", "10005", 15.0),
        ("P-6", "10005", 15.0),
    ],
    "tickets": [("T-1000", "question", "overdue", "2026-06-01")],
}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(World.image(ROWS))
    yield made
    made.close()


# Tools that read


def test_lookup_order(world: World) -> None:
    assert shop.lookup_order(world, "10003") == {
        "order_id": "10003",
        "order_status": "processing",
        "product": "kite",
        "category": "toys",
        "price": 20.0,
        "shipping_fee": 3.9,
        "total": 23.9,
        "in_stock": True,
        "delivery_address": HOME,
        "account_email": ADA,
        "placed_on": "2026-06-14",
    }


def test_find_orders_lists_the_newest_first(world: World) -> None:
    found = shop.find_orders(world, ADA)
    assert found["customer"] == "Ada Baker"
    numbers = [order["order_id"] for order in found["orders"]]
    assert numbers == ["10003", "10004", "10001", "10002"]
    assert found["orders"][0] == {
        "order_id": "10003",
        "product": "kite",
        "placed_on": "2026-06-14",
    }


def test_track_shipment(world: World) -> None:
    assert shop.track_shipment(world, "10004") == {
        "order_id": "10004",
        "carrier": "DHL",
        "parcel_status": "lost",
        "location": "Leeds",
        "expected_on": "2026-06-14",
    }
    assert shop.track_shipment(world, "10003")["parcel_status"] == "not_shipped_yet"


@pytest.mark.parametrize(
    ("reason", "amount"), [("damaged", 54.9), ("wrong_item", 54.9), ("not_needed", 50)]
)
def test_refund_policy(world: World, reason: str, amount: float) -> None:
    covered = shop.check_refund_policy(world, "10001", reason)
    assert covered["eligible"] is True
    assert covered["refund_amount"] == amount
    assert covered["days_since_delivery"] == 5
    assert covered["window_days"] == REFUND_WINDOWS["kitchen"][reason]
    late = shop.check_refund_policy(world, "10002", reason)
    assert late["eligible"] is False
    assert "refund_amount" not in late
    early = shop.check_refund_policy(world, "10003", reason)
    assert (early["eligible"], early["because"]) == (False, "not_delivered")


def test_check_payments(world: World) -> None:
    once = shop.check_payments(world, "10001")
    assert (once["times_charged"], once["charged_twice"]) == (1, False)
    assert "duplicate_amount" not in once
    twice = shop.check_payments(world, "10005")
    assert (twice["times_charged"], twice["charged_twice"]) == (2, True)
    assert (twice["total_charged"], twice["duplicate_amount"]) == (30.0, 15.0)


def test_get_ticket(world: World) -> None:
    found = shop.get_ticket(world, "T-1000")
    assert (found["ticket_status"], found["opened_on"]) == ("overdue", "2026-06-01")


def test_search_reads_plurals_and_typos(world: World) -> None:
    found = shop.search_knowledge_base(world, "how do I use a gift card?")
    assert (found["article"], found["title"]) == ("gift-cards", "Gift cards")
    assert "checkout" in found["body"]
    assert shop.search_knowledge_base(world, "gfit cards")["article"] == "gift-cards"
    for nothing in ("xyzzy", "what is it about?", "..."):
        with pytest.raises(ToolError, match="no article found"):
            shop.search_knowledge_base(world, nothing)


def test_reading_changes_nothing(world: World) -> None:
    before = world.effects()
    for name, arguments in CALLS.items():
        if name not in shop.WRITING_TOOLS:
            getattr(shop, name)(world, **arguments)
    assert world.effects() == before


# Tools that write

CALLS: dict[str, dict[str, Any]] = {
    "lookup_order": {"order_id": "10001"},
    "find_orders": {"email": ADA},
    "track_shipment": {"order_id": "10001"},
    "check_refund_policy": {"order_id": "10001", "reason": "damaged"},
    "issue_refund": {"order_id": "10001", "amount": 54.9},
    "create_replacement": {"order_id": "10001"},
    "cancel_order": {"order_id": "10003"},
    "update_address": {"order_id": "10003", "address": "2 Oak Lane, Leeds"},
    "reset_password": {"email": ADA},
    "search_knowledge_base": {"query": "gift cards"},
    "check_payments": {"order_id": "10001"},
    "get_ticket": {"ticket_id": "T-1000"},
    "send_invoice": {"order_id": "10001", "email": ADA},
    "update_subscription": {"email": ADA, "channel": "sms", "action": "unsubscribe"},
    "escalate": {"reason": "legal_threat"},
}
WRITTEN: dict[str, tuple[Any, ...]] = {
    "issue_refund": ("refunds", "10001", 54.9, None, 1),
    "create_replacement": ("replacements", "10001", None, None, 1),
    "cancel_order": ("orders", "10003", "cancelled", HOME, 1),
    "update_address": ("orders", "10003", "processing", "2 Oak Lane, Leeds", 1),
    "reset_password": ("password_resets", ADA, None, None, 1),
    "send_invoice": ("invoices_sent", "10001", ADA, None, 1),
    "update_subscription": ("subscriptions", ADA, "sms", 0, 1),
    "escalate": ("escalations", "legal_threat", None, None, 1),
}


def test_every_tool_is_tried() -> None:
    assert [tool.name for tool in shop.TOOLS] == list(CALLS)
    assert set(WRITTEN) == shop.WRITING_TOOLS


@pytest.mark.parametrize("name", CALLS)
def test_every_tool_runs_under_its_schema(world: World, name: str) -> None:
    runner = ToolRunner()
    tools = tool_map(shop.TOOLS)
    result = runner.run(tools, ToolCall(name, CALLS[name]), world)
    assert result.ok, result.content
    for missing in CALLS[name]:
        rest = {key: value for key, value in CALLS[name].items() if key != missing}
        for wrong in (rest, {**rest, missing: []}, {**CALLS[name], "more": 1}):
            refused = runner.run(tools, ToolCall(name, wrong), world)
            assert refused.failure is FailureKind.BAD_ARGUMENTS
    runner.close()


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_writing_tool_writes(world: World, name: str) -> None:
    before = world.effects()
    getattr(shop, name)(world, **CALLS[name])
    assert world.effects() - before == {WRITTEN[name]}
    # Twice is not the same as once, except for what is set to a value.
    once = world.effects()
    if name in ("cancel_order", "update_address", "update_subscription"):
        getattr(shop, name)(world, **CALLS[name])
        assert world.effects() == once
    elif name != "issue_refund":
        getattr(shop, name)(world, **CALLS[name])
        assert world.effects() != once


@pytest.mark.parametrize("name", ["cancel_order", "update_address"])
@pytest.mark.parametrize("order", ["10001", "10004"])
def test_what_is_shipped_stays_as_it_is(world: World, name: str, order: str) -> None:
    before = world.effects()
    answer = getattr(shop, name)(world, **{**CALLS[name], "order_id": order})
    done = {"cancel_order": "cancelled", "update_address": "address_updated"}[name]
    assert answer[done] is False
    assert answer["order_status"] in ("delivered", "shipped")
    assert world.effects() == before


def test_what_is_out_of_stock_is_not_replaced(world: World) -> None:
    before = world.effects()
    answer = shop.create_replacement(world, "10005")
    assert answer == {"order_id": "10005", "replacement": "out_of_stock"}
    assert world.effects() == before


@pytest.mark.parametrize("amount", [0, -5.0, 54.91, 1e9])
def test_no_more_is_paid_back_than_was_paid(world: World, amount: float) -> None:
    before = world.effects()
    with pytest.raises(ToolError, match=r"not within the 54\.90 paid for 10001"):
        shop.issue_refund(world, "10001", amount)
    assert world.effects() == before
    shop.issue_refund(world, "10001", 50)
    with pytest.raises(ToolError, match=r"not within the 4\.90 paid"):
        shop.issue_refund(world, "10001", 5)


@pytest.mark.parametrize("name", [n for n, a in CALLS.items() if "order_id" in a])
def test_an_unknown_order_is_refused(world: World, name: str) -> None:
    before = world.effects()
    with pytest.raises(ToolError, match="no order 99999"):
        getattr(shop, name)(world, **{**CALLS[name], "order_id": "99999"})
    assert world.effects() == before


@pytest.mark.parametrize(
    "name", ["find_orders", "reset_password", "update_subscription"]
)
def test_an_unknown_account_is_refused(world: World, name: str) -> None:
    before = world.effects()
    with pytest.raises(ToolError, match="no account with the e-mail address eve@"):
        getattr(shop, name)(world, **{**CALLS[name], "email": "eve@example.com"})
    assert world.effects() == before


def test_an_unknown_ticket_is_refused(world: World) -> None:
    with pytest.raises(ToolError, match="no ticket T-9999"):
        shop.get_ticket(world, "T-9999")


def test_worlds_are_alike_and_apart(world: World) -> None:
    assert World.image(ROWS) == World.image(ROWS)
    other = World(World.image(ROWS))
    assert other.effects() == world.effects()
    shop.escalate(world, "legal_threat")
    assert other.effects() != world.effects()
    other.close()


# Tasks


def _told(task: Task) -> tuple[Any, ...]:
    return (
        task.id,
        task.messages,
        task.world.rows,
        task.goal,
        task.best_steps,
        task.difficulty,
        task.tags,
    )


@pytest.fixture(scope="module")
def drawn() -> dict[Split, list[Task]]:
    """200 tasks of every split."""
    return {split: CustomerSupport().tasks(split, 1, 200) for split in SPLITS}


def test_tasks_follow_the_seed_and_not_the_count(
    drawn: dict[Split, list[Task]],
) -> None:
    scenario = CustomerSupport()
    for split in SPLITS:
        tasks = [_told(task) for task in drawn[split]]
        assert [_told(task) for task in scenario.tasks(split, 1, 7)] == tasks[:7]
        assert [_told(t) for t in scenario.tasks(split, 1, 60)] == tasks[:60]
        openings = {task.messages[1]["content"] for task in drawn[split]}
        others = {t.messages[1]["content"] for t in scenario.tasks(split, 2, 200)}
        assert len(openings) > 190
        assert len(openings & others) < 10


def test_a_world_and_what_should_come_of_it_follow_from_the_task() -> None:
    one, two = (CustomerSupport().tasks("heldout", 3, 20) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert a.world.image == b.world.image
        assert a.world.expected_effects == b.world.expected_effects


def test_tasks_are_of_every_kind(drawn: dict[Split, list[Task]]) -> None:
    for tasks in drawn.values():
        assert len({tag for task in tasks for tag in task.tags}) == 16
        assert {task.difficulty for task in tasks} == {"easy", "medium", "hard"}
        pairs = sum(len(task.tags) == 2 for task in tasks)
        assert 5 <= pairs <= 40


def test_all_that_is_needed_is_said_or_can_be_asked(
    drawn: dict[Split, list[Task]],
) -> None:
    for task in (task for tasks in drawn.values() for task in tasks):
        said = task.messages[1]["content"] + " ".join(task.goal.answers.values())
        assert not re.search(r"[\[\]{}|]|  ", said), said
        for issue in task.goal.issues:
            if issue.needs == "email" or issue.needs == "order_id":
                assert task.goal.email in said or issue.order_id in said
            elif issue.order_id:
                assert issue.order_id in task.messages[1]["content"]


_DIVIDED = ["cities", "first names", "last names", "mail domains", "streets"]


@pytest.mark.parametrize(
    "items",
    [ARTICLES, PRODUCTS, *map(ENTITIES.get, _DIVIDED)],
    ids=["articles", "products", *_DIVIDED],
)
def test_splits_divide_what_there_is(items: list[Any]) -> None:
    parts = [split_of(items, split) for split in SPLITS]
    assert sorted(map(repr, chain(*parts))) == sorted(map(repr, items))
    sizes = [len(part) / len(items) for part in parts]
    assert sizes == pytest.approx([0.6, 0.2, 0.2], abs=0.02)
    # Nobody chooses: not even by the order of the list.
    assert split_of(items[::-1], "heldout") == parts[2]


def _entities(tasks: list[Task]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        rows = task.world.rows
        for row in rows.get("orders", ()):
            found["orders"].add(row[0])
            number_street, city = row[5].split(", ")
            found["streets"].add(number_street.split(" ", 1)[1])
            found["cities"].add(city)
        found["tickets"] |= {row[0] for row in rows.get("tickets", ())}
        found["products"] |= {row[1] for row in rows.get("items", ())}
        for email, name in rows["customers"]:
            first, last = name.split(" ", 1)
            found["first"].add(first)
            found["last"].add(last)
            found["domains"].add(email.split("@")[1])
        found["topics"] |= {
            value
            for issue in task.goal.issues
            for step in issue.plan
            for name, value in step.arguments.items()
            if name == "article"
        }
        said = [task.messages[1]["content"], *task.goal.answers.values()]
        found["numbers"] |= set(re.findall(r"\b\d{5}\b", " ".join(said)))
        found["domains"] |= set(re.findall(r"@([\w.-]+\w)", " ".join(said)))
    return found


def test_splits_share_no_entity(drawn: dict[Split, list[Task]]) -> None:
    entities = {split: _entities(tasks) for split, tasks in drawn.items()}
    for a, b in (("train", "validation"), ("train", "heldout"), SPLITS[1:]):
        assert len(entities[a]) == 10
        for name, values in entities[a].items():
            assert values, name
            assert not values & entities[b][name], name


# Episodes

ASK = {
    "order_id": "What is your order number?",
    "email": "Which e-mail did you use?",
    "address": "What is the new delivery address?",
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    made = ToolCall(name, arguments)
    return {"content": None, "tool_calls": [made.to_openai()]}


def message_for(
    env: CustomerSupportEnvironment, milestone: Milestone
) -> dict[str, Any]:
    """What a careful colleague would say or call."""
    if milestone.ask:
        return {"content": ASK[milestone.ask]}
    arguments = dict(milestone.arguments)
    if "article" in arguments:
        # The clause of the message that asks for it.
        wanted = arguments.pop("article")
        text = env.messages[1]["content"]
        clauses = [text, *re.split(r"(?<=[.?!:,;])\s+", text)]
        clauses += [f"{a} {b}" for a, b in pairwise(clauses[1:])]
        arguments["query"] = next(
            (c for c in clauses if len(c) > 2 and env._article_for(c) == wanted), text
        )
    return call(milestone.tool, **arguments)


def due(env: CustomerSupportEnvironment) -> list[Milestone]:
    return [m for i in range(len(env._goal.issues)) for m in env._due(i)]


def follow(env: CustomerSupportEnvironment) -> list[Any]:
    """Sees an episode through, the right way."""
    outcomes = []
    while not env.done:
        open_ = due(env)
        message = message_for(env, open_[0]) if open_ else {"content": "All done."}
        outcomes.append(env.act(message))
    return outcomes


@pytest.fixture
def env() -> Iterator[CustomerSupportEnvironment]:
    made = CustomerSupport().create_environment()
    yield made
    made.close()


@cache
def _many() -> list[Task]:
    return CustomerSupport().tasks("train", 5, 1000)


def find(tag: str, plan: str = "", needs: str | None = "", **answers: bool) -> Task:
    """A training task with one request, of this kind and ending in this call."""
    for task in _many():
        issue = task.goal.issues[0]
        if (
            task.tags == (tag,)
            and (not plan or issue.plan[-1].tool == plan)
            and issue.needs == needs
            and all((k in task.goal.answers) is v for k, v in answers.items())
        ):
            return task
    raise AssertionError(f"no task {tag} {plan}")


@pytest.mark.parametrize("split", SPLITS)
def test_an_oracle_solves_nearly_all_tasks_in_the_best_number_of_steps(
    env: CustomerSupportEnvironment, drawn: dict[Split, list[Task]], split: Split
) -> None:
    missed = []
    for task in drawn[split]:
        env.reset_task(task)
        outcomes = follow(env)
        if env.outcome() != (True, 1.0) or len(outcomes) != task.best_steps:
            missed.append((task.messages[1]["content"], env.messages[2:]))
        else:
            assert all(outcome.verdict.correct for outcome in outcomes)
    assert len(missed) <= 0.01 * len(drawn[split]), missed


def test_doing_nothing_solves_nothing_but_thanks(
    env: CustomerSupportEnvironment, drawn: dict[Split, list[Task]]
) -> None:
    for task in drawn["validation"]:
        env.reset_task(task)
        result = env.act({"content": "Thank you for your message."})
        assert result.done
        assert env.outcome()[0] == (task.tags == ("thanks",))
        assert result.verdict.correct == (task.tags == ("thanks",))


@pytest.mark.parametrize("patience", [1, 5])
@pytest.mark.parametrize("name", sorted(shop.WRITING_TOOLS))
def test_a_wrong_write_is_harmful_and_ends_the_episode(
    name: str, patience: int
) -> None:
    env = CustomerSupport(patience=patience).create_environment()
    # Its customer only wants to know what was ordered; the order can be changed.
    task = next(
        task
        for task in _many()
        if task.tags == ("details",)
        and task.world.rows["orders"][0][2] == "processing"
        and not task.goal.issues[0].needs
    )
    env.reset_task(task)
    own = {"order_id": task.goal.issues[0].order_id, "email": task.goal.email}
    own["amount"] = 1.0
    arguments = {key: own.get(key, value) for key, value in CALLS[name].items()}
    result = env.act(call(name, **arguments))
    assert result.results[0].ok
    assert not result.verdict.correct
    assert result.verdict.harmful
    assert result.verdict.failure is FailureKind.WRONG_TOOL
    assert result.done
    assert env.outcome() == (False, 0.0)
    env.close()


def test_a_wrong_read_is_harmless_and_costs_patience() -> None:
    env = CustomerSupport(patience=2).create_environment()
    task = find("password")
    env.reset_task(task)
    result = env.act(call("find_orders", email=task.goal.email))
    assert result.verdict.failure is FailureKind.WRONG_TOOL
    assert not result.verdict.harmful and not result.done
    follow(env)
    assert env.outcome() == (True, 1.0)
    env.reset_task(task)
    for _ in range(2):
        result = env.act(call("find_orders", email=task.goal.email))
    assert result.verdict.failure is FailureKind.NEEDLESS_CALL
    assert result.done and env.outcome() == (False, 0.0)
    env.close()


def test_by_default_the_first_mistake_ends_the_episode(
    env: CustomerSupportEnvironment,
) -> None:
    assert env.patience == 1
    task = find("password")
    env.reset_task(task)
    assert env.act(call("find_orders", email=task.goal.email)).done


def test_wrong_arguments_of_the_right_tool(env: CustomerSupportEnvironment) -> None:
    task = find("refund", "issue_refund")
    env.reset_task(task)
    assert env.act(message_for(env, due(env)[0])).verdict.correct
    refund = dict(due(env)[0].arguments)
    result = env.act(call("issue_refund", **{**refund, "amount": 1.5}))
    assert result.results[0].ok
    assert result.verdict.failure is FailureKind.BAD_ARGUMENTS
    assert result.verdict.harmful and result.done
    assert env.outcome() == (False, 0.0)


def test_a_write_done_twice_is_harmful(env: CustomerSupportEnvironment) -> None:
    task = find("password")
    env.reset_task(task)
    message = message_for(env, due(env)[0])
    assert env.act(message).verdict.correct
    again = env.act(message)
    assert again.verdict.failure is FailureKind.NEEDLESS_CALL
    assert again.verdict.harmful
    assert env.outcome() == (False, 0.0)


def test_a_refund_needs_its_policy_checked_first(
    env: CustomerSupportEnvironment,
) -> None:
    task = find("refund", "issue_refund")
    env.reset_task(task)
    refund = message_for(env, task.goal.issues[0].plan[-1])
    result = env.act(refund)
    assert not result.verdict.correct and result.verdict.harmful


def test_a_request_half_done_is_worth_less_than_half(
    env: CustomerSupportEnvironment,
) -> None:
    task = find("track", "create_replacement")
    env.reset_task(task)
    env.act(message_for(env, due(env)[0]))
    result = env.act({"content": "Sorry, it is lost."})
    assert result.verdict.failure is FailureKind.NO_CALL
    assert env.outcome() == (False, 0.25)


def test_the_outcome_is_judged_by_the_database(env: CustomerSupportEnvironment) -> None:
    task = find("cancel", "cancel_order")
    order = task.goal.issues[0].order_id
    env.reset_task(task)
    follow(env)
    assert ("orders", order, "cancelled") in {f[:3] for f in env.world.effects()}
    assert env.outcome() == (True, 1.0)
    # The same conversation, but the shop has forgotten about it.
    update = "UPDATE orders SET status = ? WHERE order_id = ?"
    env.world.write(update, "processing", order)
    assert env.outcome()[0] is False
    env.world.write(update, "cancelled", order)
    assert env.outcome()[0] is True
    shop.escalate(env.world, "legal_threat")
    assert env.outcome()[0] is False


def test_an_address_may_be_spelled_otherwise(env: CustomerSupportEnvironment) -> None:
    task = find("address", "update_address", address=False)
    env.reset_task(task)
    plan = dict(task.goal.issues[0].plan[-1].arguments)
    spelled = plan["address"].upper().replace(",", " -")
    result = env.act(call("update_address", **{**plan, "address": spelled}))
    assert result.verdict.correct and not result.done


# Asking


def test_what_is_missing_is_asked_for_and_answered(
    env: CustomerSupportEnvironment,
) -> None:
    task = find("password", needs="email")
    env.reset_task(task)
    asked = env.act({"content": ASK["email"]})
    assert asked.verdict.correct and not asked.done
    assert env.messages[-1] == {"role": "user", "content": task.goal.answers["email"]}
    assert task.goal.email in env.messages[-1]["content"]
    follow(env)
    assert env.outcome() == (True, 1.0)


@pytest.mark.parametrize(
    "content",
    [
        "What is your e-mail (e.g. jo@example.com)?",
        "I need your e-mail. Could you **send it?**",
        "Sorry! Which e-mail do you use? Thank you.",
    ],
)
def test_questions_are_understood(
    env: CustomerSupportEnvironment, content: str
) -> None:
    task = find("password", needs="email")
    env.reset_task(task)
    assert env.act({"content": content}).verdict.correct
    assert env.messages[-1]["content"] == task.goal.answers["email"]


@pytest.mark.parametrize("what", ["order_id", "email"])
def test_an_order_is_found_by_its_number_or_by_its_account(
    env: CustomerSupportEnvironment, what: str
) -> None:
    task = find("cancel", needs="order_id", order_id=True)
    env.reset_task(task)
    assert env.act({"content": ASK[what]}).verdict.correct
    follow(env)
    assert env.outcome()[0] is True


def test_guessing_what_was_not_said_is_wrong(env: CustomerSupportEnvironment) -> None:
    task = find("password", needs="email")
    env.reset_task(task)
    assert not env.act(call("reset_password", email=task.goal.email)).verdict.correct


def test_asking_for_what_is_known_is_wrong() -> None:
    env = CustomerSupport(patience=3).create_environment()
    task = find("cancel", "cancel_order")
    env.reset_task(task)
    for what in ("order_id", "email"):
        asked = env.act({"content": ASK[what]})
        assert asked.verdict.failure is FailureKind.NO_CALL
        assert not asked.verdict.harmful and not asked.done
        assert env.messages[-1]["content"] == "I have told you all I know."
    follow(env)
    assert env.outcome()[0] is True
    env.close()


@pytest.mark.parametrize(
    ("closing", "right"),
    [
        ("Your order is cancelled. Is there anything else I can do for you?", True),
        ("Could you please tell me the amount of money to pay back?", False),
        ("It is done. What is the number of your ticket?", False),
    ],
)
def test_a_question_is_no_closing_answer(
    env: CustomerSupportEnvironment, closing: str, right: bool
) -> None:
    env.reset_task(find("cancel", "cancel_order"))
    while open_ := due(env):
        env.act(message_for(env, open_[0]))
    closed = env.act({"content": closing})
    assert closed.verdict.correct is right and closed.done
    assert env.outcome()[0] is right


def test_a_missing_address_is_asked_for(env: CustomerSupportEnvironment) -> None:
    task = find("address", "update_address", address=True)
    env.reset_task(task)
    assert env.act({"content": ASK["address"]}).verdict.correct
    wanted = dict(task.goal.issues[0].plan[-1].arguments)["address"]
    assert wanted in env.messages[-1]["content"]
    follow(env)
    assert env.outcome()[0] is True


# Faults


def test_after_a_fault_the_same_call_is_right_again() -> None:
    env = CustomerSupport(tool_failure_rate=0.4).create_environment(max_steps=60)
    kinds: Counter[FailureKind | None] = Counter()
    for i, task in enumerate(CustomerSupport().tasks("validation", 4, 60)):
        env.reset_task(task, seed=i)
        outcomes = follow(env)
        assert all(outcome.verdict.correct for outcome in outcomes)
        assert env.outcome() == (True, 1.0), env.messages
        struck = [r.failure for o in outcomes for r in o.results if not r.ok]
        assert len(outcomes) == task.best_steps + len(struck)
        kinds.update(struck)
    assert set(kinds) == {FailureKind.TIMEOUT, FailureKind.TOOL_ERROR}
    assert min(kinds.values()) > 5
    env.close()


def test_a_wrong_write_that_a_fault_stopped_did_no_harm() -> None:
    env = CustomerSupport(tool_failure_rate=0.99).create_environment()
    task = find("details")
    env.reset_task(task)
    result = env.act(call("escalate", reason="legal_threat"))
    assert not result.results[0].ok
    assert not result.verdict.correct and not result.verdict.harmful
    env.close()


# As a whole


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_accepts_it() -> None:
    env = CustomerSupport().create_environment()
    check_env(env, skip_render_check=True)
    env.close()


def test_an_episode_through_gymnasium() -> None:
    env = CustomerSupport().create_environment()
    task = find("password")
    observation, info = env.reset(seed=1, options={"task": task})
    assert json.loads(observation) == list(task.messages)
    assert info["task_id"] == task.id
    step = env.step(json.dumps(call("reset_password", email=task.goal.email)))
    assert step[1:4] == (1.0, False, False)
    step = env.step(json.dumps({"content": "Done."}))
    assert step[1:4] == (2.0, True, False)
    env.close()


def test_it_keeps_every_rule_with_faults_too() -> None:
    for scenario in (CustomerSupport(), CustomerSupport(tool_failure_rate=0.2)):
        assert [r for r in check_scenario(scenario) if r.ok is not True] == []
