"""Data of a report compared with the files of a session, and its time axis."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.clock import Clock
from coterie.orchestrator.report.collect import collect_report
from coterie.orchestrator.report.report_data import AgentTimeline, SessionFacts
from coterie.orchestrator.report.time_scale import GAP, WIDTH, TimeScale, span_text
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import open_root_record
from tests.orchestrator.report.report_sessions import BEGAN, SessionBuilder, fixed_parser
from tests.orchestrator.session_writer import reply

NOW = BEGAN + 100
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def builder(tmp_path: Path) -> SessionBuilder:
    return fixed_parser(tmp_path)


def read(builder: SessionBuilder) -> SessionFacts:
    return collect_report(builder.session, NOW)


def states(agent: AgentTimeline) -> list[tuple[str, float, float]]:
    """States of an agent, in seconds after the start."""
    return [(each.state, each.since - BEGAN, each.until - BEGAN) for each in agent.stretches]


def marks(agent: AgentTimeline) -> list[tuple[str, int, float]]:
    return [(mark.kind, mark.incarnation, mark.at - BEGAN) for mark in agent.marks]


def test_states_are_those_that_the_root_reported(builder: SessionBuilder) -> None:
    lead, scout, slow, planner = read(builder).agents
    assert states(lead) == [("starting", 0, 1), ("running", 1, 9), ("waiting", 9, 33), ("running", 33, 40)]
    assert lead.stretches[2].what == "3 agents"
    assert states(slow) == [("running", 10, 26), ("stalled", 26, 28)]
    assert (slow.state, slow.why) == ("killed", "It showed no sign of life for 10 seconds.")
    waits = ("plan_pending", 14, 18), ("running", 18, 22), ("plan_pending", 22, 27)
    assert states(planner) == [("running", 11, 14), *waits, ("idle", 27, 36)]
    assert [(agent.name, agent.parent, agent.depth) for agent in (lead, scout, planner)] == [
        ("main", None, 0),
        ("scout", "main", 1),
        ("planner", "main", 1),
    ]


def test_calls_have_their_duration(builder: SessionBuilder) -> None:
    lead, scout, *_ = read(builder).agents
    assert [(call.since - BEGAN, call.until - BEGAN, call.turn) for call in lead.model_calls] == [(2, 3, 1), (7, 8, 2)]
    assert [(call.name, call.since - BEGAN, call.until - BEGAN) for call in lead.tool_calls] == [("Read", 4.5, 5)]
    [failed] = scout.tool_calls
    assert (failed.name, failed.is_error, failed.reason) == ("Bash", True, "exit code 1")
    assert [(each.text, each.at - BEGAN) for each in scout.progress] == [("Reading parser.py", 13)]


def test_last_state_of_a_running_session_lasts_until_now(tmp_path: Path) -> None:
    builder = SessionBuilder.begin(tmp_path)
    builder.join(main="t", fresh="not heard of yet")
    builder.becomes(1, "main", "running")
    builder.write_all()
    with open_root_record(builder.session, Clock()):
        facts = read(builder)
        assert read_overview(builder.session).state == facts.state == "running"
    lead, fresh = facts.agents
    assert (states(lead), lead.state, marks(lead)) == ([("running", 1, 100)], "running", [("started", 1, 1)])
    assert (fresh.state, fresh.stretches) == ("running", ())
    assert (facts.last, facts.result) == (NOW, None)


def test_agents_of_a_killed_session_are_interrupted(tmp_path: Path) -> None:
    builder = SessionBuilder.begin(tmp_path)
    builder.join(main="t", fresh="not heard of yet")
    builder.becomes(1, "main", "running")
    builder.add_reply(7, "main", "I begin.", reply(1))
    facts = read(builder.write_all())
    lead, fresh = facts.agents
    assert read_overview(builder.session).state == facts.state == "interrupted"
    assert (states(lead), marks(lead)) == ([("running", 1, 7)], [("started", 1, 1), ("interrupted", 1, 7)])
    assert (lead.state, fresh.state) == ("interrupted", "interrupted")
    assert facts.last == BEGAN + 7


def test_a_session_without_events_has_no_data(tmp_path: Path) -> None:
    facts = collect_report(SessionBuilder.begin(tmp_path).session, NOW)
    assert (facts.agents, facts.letters, facts.requests, facts.approvals, facts.notables) == ((), (), (), (), ())
    assert (facts.state, facts.first, facts.last, facts.unread) == ("interrupted", BEGAN, BEGAN, ())


def damage(builder: SessionBuilder, name: str, old: bytes, new: bytes) -> Path:
    """Replace *old* in a file of the session, and return its path."""
    [path] = builder.session.directory.glob(name)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("name", "old", "new", "lost"),
    [
        ("agents/scout/events.jsonl", b"{", b'{"v":1,"at":17\n{', "nothing"),
        ("agents/main/transcript.jsonl", b"I begin.", b"I began.", "a model call"),
        ("ledger.jsonl", b'"purpose":"summary"', b'"purpose":"Summary"', "requests"),
        ("roster.json", b"{", b"[", "tasks"),
        ("mail/planner/*.log", b"Thank you.", b"Thank me!!", "letters"),
    ],
)
def test_unreadable_files_are_listed_and_hide_nothing_else(
    builder: SessionBuilder, name: str, old: bytes, new: bytes, lost: str
) -> None:
    before = read(builder)
    damage(builder, name, old, new)
    after = read(builder)
    [unread] = after.unread
    assert unread.where.startswith(name.removesuffix("/*.log"))
    assert unread.reason
    assert len(after.requests) == len(before.requests) - (lost == "requests")
    assert len(after.letters) == len(before.letters) - (lost == "letters")
    assert sum(bool(agent.task) for agent in after.agents) == (0 if lost == "tasks" else 4)
    assert [agent.state for agent in after.agents] == [agent.state for agent in before.agents]
    assert after.result == before.result


def test_reading_changes_nothing_and_an_incomplete_last_line_is_not_damage(builder: SessionBuilder) -> None:
    def contents() -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in builder.session.directory.rglob("*")}

    with (builder.session.directory / "agents/scout/events.jsonl").open("ab") as log:
        log.write(b'\n{"v":1,"at":17')
    before = contents()
    assert read(builder).unread == ()
    assert contents() == before


moments = st.floats(0, 1e7)


@given(first=moments, long=moments, busy=st.lists(st.tuples(moments, moments), max_size=8), asked=st.lists(moments))
def test_positions_are_within_the_width_and_ordered(
    first: float, long: float, busy: list[tuple[float, float]], asked: list[float]
) -> None:
    scale = TimeScale.of(first, first + long, [(min(each), max(each)) for each in busy])
    places = [scale.position(moment) for moment in sorted(asked)]
    assert all(-1e-6 <= place <= WIDTH + 1e-6 for place in places)
    assert all(later - earlier > -1e-6 for earlier, later in itertools.pairwise(places))
    ticks = [place for place, _ in scale.ticks()]
    assert ticks == sorted(ticks)
    assert len(ticks) <= 40


def test_a_long_gap_is_shortened() -> None:
    night = 8 * 3600.0
    scale = TimeScale.of(0, night + 120, [(0, 60), (night + 60, night + 120)])
    [gap] = scale.gaps
    assert scale.places[gap + 1] - scale.places[gap] == pytest.approx(GAP)
    assert scale.position(60) == pytest.approx((WIDTH - GAP) / 2)
    assert "8 h" in [label for _, label in scale.ticks()] or "8 h 1 min" in [label for _, label in scale.ticks()]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0114, "0.011 s"),
        (1.5, "1.5 s"),
        (59.99, "1 min"),
        (7380, "2 h 3 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_one_or_two_units(seconds: float, words: str) -> None:
    assert span_text(seconds) == words
