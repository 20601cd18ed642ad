import itertools
from graphlib import TopologicalSorter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.mailbox.envelope import Envelope
from coterie.scenarios.recording.reply_script import MOMENT, Barriers
from coterie.scenarios.recording.transcript_turns import AgentTurns
from tests.scenarios.recording.session_samples import agent_turns, call, delivery, message, reply_turn, text


def put(agents: list[AgentTurns], messages: list[Envelope]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    script: dict[str, list[dict[str, Any]]] = {each.name: [{} for _ in each.replies] for each in agents}
    barriers = Barriers(
        script=script, agents={each.name: each for each in agents}, messages={str(each.id): each for each in messages}
    )
    barriers.put()
    return script, barriers.remarks


def test_report_to_a_waiting_agent_is_sent_once_it_waits() -> None:
    lead = agent_turns("main", reply_turn(1, 1.0), reply_turn(2, 3.0), deliveries=[delivery("a", 1, 2.1)])
    scout = agent_turns("scout", reply_turn(1, 2.0))
    script, remarks = put([lead, scout], [message("a", "scout", "main", 2.05)])
    assert script == {"main": [{"signal": ["main-1"]}, {}], "scout": [{"until": ["main-1"]}]}
    assert not remarks


def test_message_during_a_request_waits_until_the_reply_is_requested() -> None:
    lead = agent_turns(
        "main",
        reply_turn(1, 1.0),
        reply_turn(2, 3.0, asked=1.5),
        reply_turn(3, 4.0),
        deliveries=[delivery("a", 2, 3.1)],
    )
    script, _ = put([lead, agent_turns("scout", reply_turn(1, 2.0))], [message("a", "scout", "main", 2.05)])
    assert script["main"] == [{}, {"asked": ["main-2-asked"]}, {}]
    assert script["scout"] == [{"until": ["main-2-asked"]}]


def test_reply_of_busy_recipient_waits_for_the_senders_message() -> None:
    """The next reply of the sender is asked for when what it sent is stored."""
    lead = agent_turns(
        "main", reply_turn(1, 3.0, call("Read"), asked=1.0), reply_turn(2, 4.0), deliveries=[delivery("a", 1, 3.1)]
    )
    scout = agent_turns("scout", reply_turn(1, 2.0, call("SendMessage")), reply_turn(2, 2.5, asked=2.3))
    script, remarks = put([lead, scout], [message("a", "scout", "main", 2.2)])
    assert script["main"][0] == {"asked": ["main-1-asked"], "until": ["scout-2-asked"]}
    assert script["scout"] == [{"until": ["main-1-asked"]}, {"asked": ["scout-2-asked"]}]
    assert not remarks


def test_reports_that_arrived_together_arrive_together() -> None:
    """No request follows the last reply, so the recipient waits a moment longer."""
    deliveries = [delivery("a", 1, 3.1), delivery("b", 1, 3.1)]
    lead = agent_turns("main", reply_turn(1, 3.0, asked=1.0), reply_turn(2, 4.0), deliveries=deliveries)
    messages = [message("a", "one", "main", 2.05), message("b", "two", "main", 2.55)]
    script, _ = put([lead, agent_turns("one", reply_turn(1, 2.0)), agent_turns("two", reply_turn(1, 2.5))], messages)
    assert script["main"][0] == {"asked": ["main-1-asked"], "until": ["one-1", "two-1"], "delay": MOMENT}
    assert script["two"] == [{"until": ["main-1-asked", "one-1"], "delay": MOMENT, "signal": ["two-1"]}]


def test_messages_without_an_order_get_a_remark() -> None:
    """The scout wrote during the lead's tool calls, when no reply of the lead was pending."""
    lead = agent_turns("main", reply_turn(1, 1.0, call("Bash")), reply_turn(2, 3.0), deliveries=[delivery("a", 1, 2.1)])
    _, remarks = put([lead, agent_turns("scout", reply_turn(1, 2.0))], [message("a", "scout", "main", 2.05)])
    assert remarks == ["scout wrote to main during the tool calls of turn 1: the message may arrive a turn later"]


NAMES = ("main", "one", "two")


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[AgentTurns], list[Envelope]]:
    """Agents that say something now and then, and write to each other at any time."""
    times = {name: sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=6))) for name in NAMES}
    agents = {}
    for name, moments in times.items():
        replies = [
            reply_turn(
                turn, at, *([call("Bash")] if draw(st.booleans()) else [text("x")]), asked=at - draw(st.floats(0, 0.9))
            )
            for turn, at in enumerate(moments, 1)
        ]
        agents[name] = agent_turns(name, *replies)
    messages = []
    for number in range(draw(st.integers(0, 8))):
        sender, to = draw(st.permutations(NAMES))[:2]
        created = draw(st.integers(1, 40)) + 0.5
        turn = sum(at <= created for at in times[to])
        messages.append(message(str(number), sender, to, created))
        agents[to].deliveries.append(delivery(str(number), turn, created + 0.2))
    return list(agents.values()), messages


@pytest.mark.slow
@given(sessions())
def test_no_two_replies_wait_for_each_other(session: tuple[list[AgentTurns], list[Envelope]]) -> None:
    script, _ = put(*session)
    raised = {
        name: (agent, turn, key)
        for agent, replies in script.items()
        for turn, reply in enumerate(replies)
        for key in ("asked", "signal")
        for name in reply.get(key, ())
    }
    # Each reply is asked for, and then sent; the next is asked for behind that.
    behind: dict[tuple[str, int, str], set[tuple[str, int, str]]] = {}
    for agent, replies in script.items():
        moments = [(agent, turn, key) for turn in range(len(replies)) for key in ("asked", "signal")]
        for before, after in itertools.pairwise(moments):
            behind.setdefault(after, set()).add(before)
        for turn, reply in enumerate(replies):
            behind.setdefault((agent, turn, "signal"), set()).update(raised[name] for name in reply.get("until", ()))
    list(TopologicalSorter(behind).static_order())
