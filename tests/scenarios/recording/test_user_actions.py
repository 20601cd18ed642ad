"""Steps, acts and faults, from events and mail of sessions that tests make up."""

from typing import Any

import pytest

from coterie.agents.events.agent_events import Finished, RunStarted, ToolStarted
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import ApprovalAsked, ApprovalDecided
from coterie.mailbox.envelope import Envelope
from coterie.scenarios.recording.recorded_actions import RecordedActions
from coterie.scenarios.recording.transcript_turns import AgentTurns
from tests.scenarios.recording.session_samples import (
    agent_turns,
    call,
    changed,
    make_placeholders,
    message,
    reply_turn,
    session_event,
    text,
)


def actions(events: list[SessionEvent], messages: list[Envelope] | None = None, *agents: AgentTurns) -> RecordedActions:
    return RecordedActions(
        events=events,
        messages={str(each.id): each for each in messages or ()},
        agents={each.name: each for each in agents},
        placeholders=make_placeholders(),
    )


def started(agent: str, at: float, tool: str) -> SessionEvent:
    return session_event(agent, at, ToolStarted(id=f"toolu_{at}", name=tool))


TWICE = [
    changed("main", 1, "starting"),
    started("main", 2, "Bash"),
    changed("main", 3, "done"),
    changed("main", 10, "starting", incarnation=2),
    started("main", 11, "Bash"),
    changed("main", 12, "done", incarnation=2),
]


def test_resumed_session_has_a_step_for_each_start() -> None:
    lead = agent_turns("main", reply_turn(1, 2, text("x")))
    lead.user_texts += [(1.1, "Do it."), (10.1, "Go on in /p/src.")]
    by_user = message("m", "user", "main", 5, kind="human", body="See /p/a.txt")
    found = actions(TWICE, [by_user], lead)
    assert found.steps() == ["run", {"mail": {"to": "main", "text": "See a.txt"}}, {"resume": "Go on in src."}]
    assert (found.user_actions(), found.faults()) == ([], [])


def test_root_without_recorded_end_is_killed_at_the_last_event() -> None:
    """The second call of Bash was the last, so the fault strikes at the second."""
    events = [changed("main", 1, "starting"), *(started("main", at, "Bash") for at in (2, 3)), *TWICE[3:]]
    found = actions(events, [], agent_turns("main", reply_turn(1, 2)))
    moment = {"when": {"kind": "tool_started", "agent": "main", "name": "Bash"}, "nth": 2}
    assert found.faults() == [{**moment, "do": "kill", "target": "root"}]
    assert found.steps() == ["run", "resume"]


def test_restarted_agent_is_recorded_as_a_kill_and_not_as_a_resume() -> None:
    events = [
        changed("main", 1, "starting"),
        started("main", 2, "Read"),
        changed("main", 3, "killed", what="Its process was ended by SIGKILL."),
        changed("main", 4, "starting", incarnation=2, what="again, 1 of 2: Its process was ended by SIGKILL."),
        changed("main", 5, "done", incarnation=2),
    ]
    found = actions(events, [], agent_turns("main", reply_turn(1, 2)))
    moment = {"when": {"kind": "tool_started", "agent": "main", "name": "Read"}}
    assert found.faults() == [{**moment, "do": "kill", "target": "main"}]
    assert found.steps() == ["run"]


def approval(id: str, at: float, by: str, verdict: Any, feedback: str = "") -> list[SessionEvent]:  # noqa: A002 - the API's word
    asked = ApprovalAsked(id=id, what="plan", name="builder", incarnation=1, by=by, subject="Build.")
    decided = ApprovalDecided(id=id, name="builder", verdict=verdict, by=by, feedback=feedback)
    return [session_event("root", at, asked), session_event("root", at + 0.5, decided)]


def test_only_decisions_of_the_user_become_user_actions() -> None:
    events = [
        *TWICE[:2],
        *approval("plan-1", 2.1, "lead", "rejected"),
        *approval("plan-2", 2.2, "human", "rejected", "No."),
        *approval("plan-3", 2.3, "human", "approved"),
    ]
    when = {"kind": "approval_asked", "name": "builder", "what": "plan"}
    assert actions(events, [], agent_turns("main", reply_turn(1, 2))).user_actions() == [
        {"when": when, "nth": 2, "do": "reject", "feedback": "No."},
        {"when": when, "nth": 3, "do": "approve"},
    ]


BEGAN = RunStarted(session="s", incarnation=1, model="m", permission_mode="default", project="/p", tools=[])


@pytest.mark.parametrize(("reply", "remarks"), [(text("I wait."), 0), (call("Bash"), 1)])
def test_user_mail_to_a_running_team_is_sent_at_the_same_event(reply: dict[str, Any], remarks: int) -> None:
    """Mail to a busy agent may arrive later, and a remark reports it."""
    by_user = message("m", "user", "main", 2.5, kind="human", body="Hurry.")
    events = [changed("main", 1, "starting"), session_event("main", 1.5, BEGAN), changed("main", 3, "done")]
    found = actions(events, [by_user], agent_turns("main", reply_turn(1, 2, reply)))
    when = {"kind": "started", "agent": "main", "incarnation": 1}
    assert found.user_actions() == [{"when": when, "do": "mail", "to": "main", "text": "Hurry."}]
    assert len(found.remarks) == remarks


def test_user_mail_without_an_event_is_omitted_with_a_remark() -> None:
    by_user = message("m", "user", "main", 2.5, kind="human", body="Hurry.")
    found = actions(TWICE[:3], [by_user], agent_turns("main", reply_turn(1, 2)))
    assert found.user_actions() == []
    assert found.remarks == ["the user's message to main came before the first event of main and is omitted"]


def test_interrupted_run_is_stopped_at_the_same_event() -> None:
    ended = Finished(reason="cancelled", result="", turns=1, usage={}, cost_usd="0")
    events = [*TWICE[:2], session_event("main", 2.5, ended), TWICE[2]]
    found = actions(events, [], agent_turns("main", reply_turn(1, 2)))
    when = {"kind": "tool_started", "agent": "main", "name": "Bash"}
    assert found.user_actions() == [{"when": when, "do": "stop"}]
    assert found.faults() == []
