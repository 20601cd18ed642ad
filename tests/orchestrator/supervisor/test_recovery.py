"""Records of unfinished agents that the next root resumes, and the start of a team."""

from decimal import Decimal

import attrs
import pytest
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.clock import Clock
from coterie.mailbox.envelope import MessageId, new_message_id
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.store import ApprovalKey
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.child_agents import spawn_team
from coterie.orchestrator.supervisor.recovery import UNFINISHED_FILE, UnfinishedAgent, UnfinishedAgents
from coterie.session_directory import MAIN, SessionDirectory
from tests.orchestrator.supervisor.process_samples import NoSpawner

REQUEST = SpawnRequest(
    task="Find it.",
    definition="explore",
    name="scout",
    stays=True,
    plan=PlanPolicy(by="rule", paths=("tests/**",)),
    budget_usd=Decimal("0.50"),
)
REPORT = new_message_id()


@pytest.fixture
def events() -> list[Event]:
    return []


def record(name: str, parent: str = MAIN) -> UnfinishedAgent:
    return UnfinishedAgent(name=name, parent=parent, request=REQUEST, report=REPORT)


def unfinished(session: SessionDirectory, events: list[Event]) -> UnfinishedAgents:
    return UnfinishedAgents(session, ApprovalKey.of_session(session.id), events.append)


def only_failure(events: list[Event]) -> str:
    [event] = events
    assert isinstance(event, LayerFailed)
    return event.reason


async def found(session: SessionDirectory, events: list[Event]) -> UnfinishedAgents:
    orders = unfinished(session, events)
    await orders.load()
    return orders


async def test_next_root_loads_unfinished_and_done_agents_but_no_ended_ones(
    session: SessionDirectory, events: list[Event]
) -> None:
    orders = unfinished(session, events)
    for name in ("scout", "kept", "gone"):
        await orders.begin(record(name))
    for name in ("kept", "gone"):
        await orders.end(record(name), is_kept=name == "kept")
    resumed = await found(session, events)
    assert resumed.of(MAIN) == [attrs.evolve(record("kept"), is_done=True), record("scout")]
    await resumed.begin(record("scout"))
    assert resumed.names == {"kept"}
    assert (await found(session, events)).names == {"kept", "scout"}
    assert events == []


async def test_discard_of_a_parent_discards_its_children(session: SessionDirectory, events: list[Event]) -> None:
    before = unfinished(session, events)
    for name, parent in (("mother", MAIN), ("child", "mother"), ("grandchild", "child"), ("other", MAIN)):
        await before.begin(record(name, parent))
    orders = await found(session, events)
    assert [left.name for left in orders.of("mother")] == ["child"]
    await orders.discard("mother")
    assert orders.names == {"other"}
    assert (await found(session, events)).names == {"other"}


@pytest.mark.parametrize("is_done", [True, False])
async def test_record_is_discarded_when_its_parent_has_ended(
    session: SessionDirectory, events: list[Event], *, is_done: bool
) -> None:
    before = unfinished(session, events)
    await before.begin(record("orphan", "mother"))
    if is_done:
        await before.end(record("mother"), is_kept=True)
    assert "orphan" not in (await found(session, events)).names
    assert not (session.agent_directory("orphan") / UNFINISHED_FILE).exists()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        *((None, content, "") for content in (b"", b"{", b"[1]", b'{"v":1}', b"\xff", b"[" * 100_000)),
        (b'"v":1', b'"v":2', "the file has format version 2, but this program reads 1"),
        (b'{"by":"rule","paths":["tests/**"]}', b"null", "the signature of the file is invalid"),
    ],
    ids=["empty", "torn", "list", "no order", "not UTF-8", "nested", "version", "plan policy removed"],
)
async def test_unreadable_changed_or_copied_record_is_rejected_and_hides_no_other(
    session: SessionDirectory, events: list[Event], old: bytes | None, new: bytes, reason: str
) -> None:
    before = unfinished(session, events)
    for name in ("whole", "scout"):
        await before.begin(record(name))
    path = session.agent_directory("scout") / UNFINISHED_FILE
    written = path.read_bytes()
    content = new if old is None else written.replace(old, new)
    path.write_bytes(content)
    (session.agent_directory("elsewhere") / UNFINISHED_FILE).write_bytes(written)
    assert (await found(session, events)).names == {"whole"}
    assert only_failure(events).startswith(f"agent scout cannot be resumed: {path}: {reason}")
    assert path.read_bytes() == content


async def test_failed_write_of_a_record_is_an_event(session: SessionDirectory, events: list[Event]) -> None:
    (session.directory / "agents").write_text("in the way")
    await unfinished(session, events).begin(record("scout"))
    reason = "agent scout cannot be resumed after a crash; no record was saved: Not a directory"
    assert only_failure(events) == reason


@attrs.define(eq=False)
class PartialSpawner(NoSpawner):
    refused: str
    started: list[str | None] = attrs.field(factory=list)

    async def spawn(self, request: SpawnRequest) -> Spawned:
        await trio.lowlevel.checkpoint()
        if request.name == self.refused:
            raise SpawnRefused("No agent was started: the disk is full.")
        self.started.append(request.name)
        return Spawned(name=str(request.name), incarnation=1, report=MessageId("r"))


async def test_members_without_a_task_start_first_and_a_failed_one_is_reported(session: SessionDirectory) -> None:
    tasks = {"a": "Go.", "b": "", "c": "Go.", "d": ""}
    requests = [SpawnRequest(task=task, definition="worker", name=name, stays=True) for name, task in tasks.items()]
    told, spawner = list[Event](), PartialSpawner("b")
    with SessionMail.open(session, Clock()) as office:
        await office.roster.join(MAIN)
        await spawn_team(requests, spawner, MAIN, StatusPublisher(office, told.append), told.append)
        async with office.files.open_inbox(MAIN, 1) as inbox:
            [delivery] = inbox.take_nowait()
    assert spawner.started == ["d", "a", "c"]
    reason = "b of your team could not be started. No agent was started: the disk is full."
    assert told == [LayerFailed(layer="team", reason=reason)]
    assert (delivery.envelope.body, delivery.envelope.sender.kind) == (reason, "system")
