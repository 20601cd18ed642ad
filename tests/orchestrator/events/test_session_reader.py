"""Tests of reading a session as events, from complete, torn, damaged and growing files."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie import inotify
from coterie.agents.events.agent_events import Event, TextEmitted, ToolStarted
from coterie.agents.events.event_reader import LineUnreadable, MessageRecorded, ReplyRecorded, SessionEvent
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.events.event_sources import LogLines
from coterie.orchestrator.events.follower import open_follower
from coterie.orchestrator.events.session_reader import SessionReader, read_session
from tests.orchestrator.session_writer import FINISHED, STARTED, SteppingClock, open_writer, reply


def kinds(events: Iterator[SessionEvent]) -> list[str]:
    return [event.kind for event in events]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "20260101-000000-abcdef"
    path.mkdir()
    return path


def test_events_and_records_are_merged_in_order(session: Path) -> None:
    with open_writer(session) as agent:
        agent.write_event(STARTED)
        agent.write_text("user", "the task")
        agent.write_event(TextEmitted(turn=1, text="do"))
        agent.write_text("assistant", "done", reply())
        agent.write_event(FINISHED)
    events = list(read_session(session))
    assert kinds(iter(events)) == ["started", "message", "text", "message", "replied", "finished"]
    task, said = (event.event for event in events if isinstance(event.event, MessageRecorded))
    assert task == MessageRecorded(role="user", content=[{"type": "text", "text": "the task"}])
    assert said == MessageRecorded(role="assistant", content=[{"type": "text", "text": "done"}])
    assert isinstance(events[4].event, ReplyRecorded)
    assert events[4].event.usage == Usage(input=5, output=7)
    assert [event.at for event in events] == [1001, 1002, 1003, 1004, 1004, 1005]


def test_agents_are_merged_by_time_and_can_be_selected(session: Path) -> None:
    clock = SteppingClock()
    with open_writer(session, "main", clock) as main, open_writer(session, "scout", clock) as scout:
        for _ in range(3):
            main.write_event(TextEmitted(turn=1, text="m"))
            scout.write_text("user", "s")
    assert [event.agent for event in read_session(session)] == ["main", "scout"] * 3
    assert [event.agent for event in read_session(session, "scout")] == ["scout"] * 3


def test_rewrite_is_one_event_without_repeated_messages(session: Path) -> None:
    with open_writer(session) as agent:
        agent.transcript.record(agent.conversation)
        assert kinds(read_session(session)) == [], "the first epoch is no rewrite"
        agent.write_text("user", "one")
        agent.write_text("assistant", "two")
        agent.write_text("user", "three")
        kept = agent.conversation.prefix.cut(2)
        agent.conversation = Conversation(kept, agent.conversation.epoch + 1)
        agent.write_text("assistant", "a summary")
        agent.write_text("user", "four")
    events = list(read_session(session))
    assert kinds(iter(events)) == ["message", "message", "message", "epoch", "message"]
    assert [events[3].members[key] for key in ("epoch", "kept", "messages")] == [1, 2, 2]


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'{"v":1}', b'{"v":1,"at":1,"agent":"a","kind":"text"}', b"\xff", b"[" * 5000, b" "]
)
def test_damaged_event_line_becomes_event_with_position(session: Path, line: bytes) -> None:
    with open_writer(session) as agent:
        agent.write_event(STARTED)
        path = session / "agents/main/events.jsonl"
        with path.open("ab") as file:
            file.write(b"\n" + line + b"\n")
        agent.write_event(FINISHED)
    first, damaged, last = read_session(session)
    assert (first.kind, last.kind) == ("started", "finished")
    assert isinstance(damaged.event, LineUnreadable)
    assert (damaged.event.file, damaged.event.line) == ("agents/main/events.jsonl", 3)
    assert msgspec.json.decode(damaged.line)["reason"]


@given(garbage=st.binary(max_size=200), name=st.sampled_from(["events.jsonl", "transcript.jsonl"]))
def test_no_line_raises_exception(tmp_path_factory: pytest.TempPathFactory, garbage: bytes, name: str) -> None:
    session = tmp_path_factory.mktemp("session")
    (session / "agents/main").mkdir(parents=True)
    (session / "agents/main" / name).write_bytes(garbage + b"\n")
    assert set(kinds(read_session(session))) <= {"unreadable"}


def test_unknown_events_of_later_versions_are_kept(session: Path) -> None:
    with open_writer(session) as agent:
        agent.write_event(STARTED)
    path = session / "agents/main/events.jsonl"
    later = [
        {"v": 1, "at": 5000, "agent": "main", "kind": "glowed", "colour": "red"},
        {"v": 2, "at": 5001, "agent": "main", "kind": "text", "words": ["a"]},
    ]
    with path.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in later))
    _, glowed, text = read_session(session)
    assert (glowed.event, text.event) == (None, None)
    assert (glowed.members["colour"], text.members["words"]) == ("red", ["a"])


def test_truncated_file_is_read_from_new_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = LogLines(path)
    path.write_bytes(b"\none\n\ntwo\n\nthr")

    def take() -> list[bytes]:
        taken = []
        for line in lines.read(lines.size()):
            lines.mark_read(line)
            taken.append(line.content)
        return taken

    assert take() == [b"one", b"two"]
    for content, new in (
        (b"\none\n\ntwo\n", []),
        (b"\none\n\ntwo\n\nthree\n", [b"three"]),
        (b"\none\n", []),
        (b"\none\n\nfour\n", [b"four"]),
    ):
        path.write_bytes(content)
        assert take() == new


def test_event_waits_for_earlier_records(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent writes between any two reads; the order is kept, and the end comes last."""
    size = LogLines.size
    with open_writer(session) as agent:
        agent.write_event(STARTED)
        turns = iter(range(1, 30))

        def write_and_size(lines: LogLines) -> int:
            seen = size(lines)
            if (turn := next(turns, None)) is not None:
                agent.write_event(TextEmitted(turn=turn, text="x"))
                agent.write_text("user" if turn % 2 else "assistant", str(turn))
            return seen

        monkeypatch.setattr(LogLines, "size", write_and_size)
        reader = SessionReader(session)
        events = [event for _ in range(30) for event in reader.read_new()]
    assert kinds(iter(events)) == ["started", *["text", "message"] * 29]
    assert [event.at for event in events] == sorted(event.at for event in events)


async def test_follower_waits_for_new_events_and_agents(session: Path) -> None:
    async def act(agent: str, event: Event) -> None:
        await trio.testing.wait_all_tasks_blocked()
        with open_writer(session, agent) as writer:
            writer.write_event(event)

    with trio.fail_after(5):
        async with open_follower(session) as follower, trio.open_nursery() as nursery:
            for agent, event in [("main", STARTED), ("scout", STARTED), ("main", FINISHED)]:
                nursery.start_soon(act, agent, event)
                seen = await anext(follower)
                assert (seen.agent, seen.event) == (agent, event)


async def test_torn_tail_cut_before_resume_is_never_shown(session: Path) -> None:
    with open_writer(session) as agent:
        agent.write_text("user", "one")
    path = session / "agents/main/transcript.jsonl"
    record = path.read_bytes()
    with path.open("ab") as file:
        file.write(record[: len(record) // 2])
    async with open_follower(session) as follower:
        follower.skip()
        with open_writer(session) as agent:
            agent.write_text("assistant", "two")
        with trio.fail_after(5):
            assert (await anext(follower)).members["role"] == "assistant"
        assert follower.take_nowait() is None


async def test_cancellation_loses_no_event(session: Path) -> None:
    with open_writer(session) as agent:
        async with open_follower(session) as follower:
            seen = []
            for number in range(20):
                agent.write_event(ToolStarted(id=str(number), name="Read"))
                with trio.move_on_after(0):
                    seen.append(await anext(follower))
            while (event := follower.take_nowait()) is not None:
                seen.append(event)
    assert [event.members["id"] for event in seen] == [str(number) for number in range(20)]


async def test_follower_polls_without_inotify(
    session: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(inotify, "open_inotify", lambda: None)
    with open_writer(session) as agent:

        async def write_later() -> None:
            await trio.sleep(0.6)
            agent.write_event(STARTED)

        async with open_follower(session) as follower, trio.open_nursery() as nursery:
            nursery.start_soon(write_later)
            assert (await anext(follower)).kind == "started"
    assert trio.current_time() == pytest.approx(0.75)
