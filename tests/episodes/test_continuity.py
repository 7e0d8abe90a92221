"""How requests relate to each other, and what trajectories come of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.task import Task
from agentgym.core.trajectory import Step
from agentgym.episodes.continuity import Context, Continuity, message_key
from agentgym.episodes.recorder import Exchange, Recorder, warnings_of

TASK = Task("t", ())
SYSTEM = {"role": "system", "content": "You book trips."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(name: str, arguments: str = "{}", number: int = 0) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(text: str, number: int = 0) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {}}}


class Talk:
    """A session in which requests are answered."""

    def __init__(self) -> None:
        self.recorder = Recorder()

    def __call__(
        self,
        messages: list[Any],
        reply: dict[str, Any],
        tools: tuple[str, ...] = ("book",),
        **options: Any,
    ) -> Exchange:
        payload = {"messages": messages, "tools": [tool(name) for name in tools]}
        return self.recorder.add(Context.of(payload), Step(reply), **options)

    @property
    def steps(self) -> list[list[tuple[Any, bool]]]:
        """For each trajectory: contents of the steps, and whether they are replayed."""
        return [
            [(s.message.get("content"), s.replayed) for s in t.steps]
            for t in self.recorder.trajectories(TASK)
        ]


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_a_conversation_that_goes_on(talk: Talk) -> None:
    opening = [SYSTEM, user("To Rome, please")]
    reply = calls("book", '{"to": "Rome",  "n": 1}')
    assert talk(opening, reply).continuity == "first"
    # As frameworks send it back: other ids, contents and spaces.
    again = calls("book", '{"n":1,"to":"Rome"}', 7)
    again["content"] = ""
    parts = {"role": "user", "content": [{"type": "text", "text": "To Rome, please"}]}
    developer = {**SYSTEM, "role": "developer", "name": "boss"}
    after = [developer, parts, again, result("done", 7)]
    last = talk(after, says("It is booked."))
    assert last.continuity == "continued" and last.parent is not None
    assert talk.steps == [[(None, False), ("It is booked.", False)]]
    assert not talk.recorder.breaks


def test_a_conversation_that_branches(talk: Talk) -> None:
    opening = [SYSTEM, user("To Rome, please")]
    talk(opening, says("By train?"))
    left = [*opening, says("By train?"), user("Yes")]
    talk(left, says("Which day?"))
    # Back to the first answer, with another word from the user.
    right = [*opening, says("By train?"), user("No")]
    other = talk(right, says("By ship?"))
    assert other.continuity == "branched"
    assert talk([*right, says("By ship?"), user("Hm")], says("So?")).continuity == (
        "continued"
    )
    assert talk.steps == [
        [("By train?", False), ("Which day?", False)],
        [("By train?", True), ("By ship?", False), ("So?", False)],
    ]
    assert talk.recorder.breaks == {Continuity.BRANCHED: 1}


def test_asking_again_is_a_branch(talk: Talk) -> None:
    opening = [SYSTEM, user("To Rome, please")]
    for text in ("By train?", "By ship?"):
        talk(opening, says(text))
    assert [e.continuity for e in talk.recorder.exchanges] == ["first", "branched"]
    chosen = talk([*opening, says("By ship?"), user("Yes")], says("Fine."))
    assert chosen.continuity == "continued"
    assert talk.steps == [
        [("By train?", False)],
        [("By ship?", False), ("Fine.", False)],
    ]


def test_an_answer_that_was_rewritten_is_a_branch(talk: Talk) -> None:
    opening = [SYSTEM, user("To Rome, please")]
    talk(opening, says("By train?"))
    other = talk([*opening, says("(edited)"), user("Yes")], says("Fine."))
    assert other.continuity == "branched" and other.parent is None


@pytest.mark.parametrize(
    "rewritten",
    [
        [user("So far: the user wants to go to Rome by train."), result("sold out")],
        [result("sold out")],
        [user("You said before: Which day would suit you?")],
    ],
)
def test_a_history_that_was_cut_or_retold(talk: Talk, rewritten: Any) -> None:
    opening = [SYSTEM, user("To Rome, please")]
    talk(opening, says("Which day would suit you?"))
    whole = [*opening, says("Which day would suit you?"), user("Friday")]
    talk(whole, calls("book"))
    talk([*whole, calls("book"), result("sold out")], says("Sold out. Saturday then?"))
    after = talk([SYSTEM, *rewritten], says("Fine."))
    assert after.continuity == "summarised" and after.parent is None
    assert [len(steps) for steps in talk.steps] == [3, 1]


def test_another_agent_of_the_team(talk: Talk) -> None:
    talk([SYSTEM, user("To Rome, please")], says("Let us look at the weather there."))
    other = {"role": "system", "content": "You know the weather."}
    quoting = talk(
        [other, user("anna: Let us look at the weather there.")], says("It is fine.")
    )
    sharing = talk(
        [{"role": "system", "content": "You check."}, user("To Rome, please")],
        says("Good."),
    )
    assert quoting.continuity == sharing.continuity == "sub_agent"


def test_a_task_handed_to_another_agent(talk: Talk) -> None:
    talk([SYSTEM, user("Hi")], calls("ask_expert", '{"question": "How is the sea?"}'))
    other = {"role": "system", "content": "You know the sea."}
    assert talk([other, user("How is the sea?")], says("Wet")).continuity == "sub_agent"


def test_nothing_shared(talk: Talk) -> None:
    talk([SYSTEM, user("To Rome, please")], says("By train?"))
    assert talk([SYSTEM, user("Hello")], says("Hi")).continuity == "unrelated"
    other = [{"role": "system", "content": "You sing."}, user("La la")]
    assert talk(other, says("La")).continuity == "unrelated"
    assert len(talk.steps) == 3
    (text,) = warnings_of(talk.recorder.breaks)
    assert "start unrelated conversations (2 times, 'unrelated')" in text


# Side calls ------------------------------------------------------------------------


def test_side_calls(talk: Talk) -> None:
    opening = [SYSTEM, user("To Rome, please")]
    title = talk([user("Name this chat: To Rome, please")], says("Rome"), ())
    first = talk(opening, calls("book"))
    memory = talk([user("What is worth keeping of: ...")], says("{}"), ())
    # Without tools, but of the same conversation: AutoGen's reflection on a result.
    last = talk([*opening, calls("book"), result("ok")], says("Done."), ())
    told = talk([SYSTEM, user("x")], says("y"), side=True)
    assert talk.recorder.decisions == [first, last]
    assert all(map(talk.recorder.is_side_call, (title, memory, told)))
    assert talk.steps == [[(None, False), ("Done.", False)]]


def test_a_commit_message_of_an_agent_without_tools(talk: Talk) -> None:
    edit = talk([SYSTEM, user("Mend it")], says("<<<< x ==== y >>>>"), ())
    commit = talk([user("Write a commit message: -x +y")], says("Mend x"), ())
    assert talk.recorder.decisions == [edit]
    assert talk.recorder.is_side_call(commit)


def test_agents_without_tools_are_no_side_calls(talk: Talk) -> None:
    talk([user("Think and act. Task: add 2 and 3")], says("Action: add 2 3"), ())
    prompt = "Think and act. Task: add 2 and 3 Action: add 2 3 Observation: 5"
    talk([user(prompt)], says("The answer is 5"), ())
    assert len(talk.recorder.decisions) == 2
    # A team that speaks in turn, each once, about the same task.
    team = Talk()
    for name in ("Writer", "Critic", "Editor"):
        system = {"role": "system", "content": f"You are the {name}."}
        team([system, user("Write about the sea")], says(f"I, {name}, say"), ())
    assert len(team.recorder.decisions) == 3


def test_what_had_an_effect_is_no_side_call(talk: Talk) -> None:
    used = talk([user("What now?")], says("Hello!"), ())
    talk([SYSTEM, user("To Rome, please")], calls("book"))
    assert talk.recorder.is_side_call(used)
    used.used = True
    assert not talk.recorder.is_side_call(used)


# Whatever comes --------------------------------------------------------------------

_WORDS = st.sampled_from(["a", "b", "a long enough text", ""])
_MESSAGES = st.lists(
    st.one_of(
        st.builds(user, _WORDS),
        st.builds(says, _WORDS),
        st.just(SYSTEM),
        st.builds(calls, _WORDS),
        st.fixed_dictionaries({"role": st.none() | st.integers()}),
        st.just({"role": "assistant", "tool_calls": [3, {"function": None}]}),
    ),
    max_size=4,
)


@given(st.lists(st.tuples(_MESSAGES, _WORDS), max_size=6))
def test_every_decision_is_in_one_trajectory_and_learned_once(talks: Any) -> None:
    talk = Talk()
    for messages, reply in talks:
        talk(messages, says(reply))
    found = talk.recorder.trajectories(TASK)
    learned = [s for t in found for s in t.steps if not s.replayed]
    assert len({id(step) for step in learned}) == len(learned)
    assert len(learned) == len(talk.recorder.decisions)
    for trajectory in found:
        replayed = [step.replayed for step in trajectory.steps]
        assert replayed == sorted(replayed, reverse=True)


@given(_MESSAGES, _MESSAGES)
def test_equal_states_have_equal_keys(left: Any, right: Any) -> None:
    one, other = Context.of({"messages": left}), Context.of({"messages": right})
    same = [message_key(m) for m in left] == [message_key(m) for m in right]
    assert (one.state_key == other.state_key) is same
