"""Sessions for reports, written as their processes write them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events.agent_events import Event, ProgressSummarized, Retrying, ToolEnded
from coterie.agents.events.event_log import EventLog
from coterie.agents.events.layer_events import CacheBroke
from coterie.agents.events.root_events import AgentChanged, AgentState, ApprovalAsked, ApprovalDecided, ApprovalRejected
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import MailRecord, ReplyRecord
from coterie.clock import Clock
from coterie.mailbox.contract import MemberOrigin
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.message_bodies import TaskNotification
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger, LedgerEntry
from coterie.session_directory import SessionDirectory
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.mail_writer import MailWriter
from tests.orchestrator.session_writer import COMPACTED, FINISHED, STARTED, SessionWriter, open_writer, reply

BEGAN = 1_790_000_000.0


@attrs.define(eq=False)
class SetClock(Clock):
    """Clock that shows a time set by the test."""

    moment: float = BEGAN

    def now(self) -> float:
        return self.moment


@attrs.define(eq=False)
class SessionBuilder:
    """Builder of a session; times are seconds after its start."""

    session: SessionDirectory
    clock: SetClock
    mail: MailWriter
    _script: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list, init=False)
    """Pending writes by time, because logs are in order of time."""

    @classmethod
    def begin(cls, project: Path, task: str = "Mend the parser.") -> "SessionBuilder":
        """Create a session without events."""
        clock = SetClock()
        session = SessionDirectory.create(project, clock, task=task, model="claude-opus-5-5")
        return cls(session, clock, MailWriter(session, clock))

    def write_all(self) -> "SessionBuilder":
        """Carry out all pending writes."""
        for seconds, write in sorted(self._script, key=lambda each: each[0]):
            self.clock.moment = BEGAN + seconds
            write()
        self._script.clear()
        return self

    def root(self, seconds: float, event: Event) -> None:
        def write() -> None:
            with EventLog.open(self.session.directory / "events.jsonl", "root", self.clock) as log:
                log.emit(event)

        self._script.append((seconds, write))

    def agent(self, seconds: float, name: str, event: Event) -> None:
        self._add(seconds, name, lambda agent: agent.write_event(event))

    def add_reply(self, seconds: float, name: str, words: str, used: ReplyRecord) -> None:
        self._add(seconds, name, lambda agent: agent.write_text("assistant", words, used))

    def add_delivery(self, seconds: float, name: str, text: str, id_: str) -> None:
        """Add the delivery of mail to an agent's transcript."""

        def deliver(agent: SessionWriter) -> None:
            agent.conversation.append("user", [text_block(text)])
            agent.transcript.record(agent.conversation, MailRecord(ids=[id_]))

        self._add(seconds, name, deliver)

    def _add(self, seconds: float, name: str, write: Callable[[SessionWriter], None]) -> None:
        def write_agent() -> None:
            with open_writer(self.session.directory, name, self.clock) as agent:
                write(agent)

        self._script.append((seconds, write_agent))

    def becomes(self, seconds: float, name: str, state: AgentState, what: str = "", start: int = 1) -> None:
        """Add a state change of an agent."""
        parent = None if name == "main" else "main"
        self.root(seconds, AgentChanged(name=name, incarnation=start, state=state, what=what, parent=parent))

    def bill(self, *lines: LedgerEntry) -> None:
        """Add ledger entries."""
        with Ledger.open(self.session.directory / LEDGER) as ledger:
            for each in lines:
                ledger.append(each)

    def join(self, **tasks: str) -> None:
        """Add agents with their tasks to the roster."""

        async def join() -> None:
            with self.mail.open() as mail_of_session:
                for name, task in tasks.items():
                    parent = None if name == "main" else "main"
                    await mail_of_session.roster.join(name, MemberOrigin(kind="worker", parent=parent, task=task))

        trio.run(join)

    def make_message(self, seconds: float, sender: str, recipient: str, body: str, **facts: Any) -> Envelope:
        """Make a message without sending it."""
        return self.mail.make_message(sender, recipient, body, created=BEGAN + seconds, **facts)


def fixed_parser(project: Path) -> SessionBuilder:
    """A lead, a worker that crashes and restarts, a planner that asks twice, and an agent that stalls."""
    builder = SessionBuilder.begin(project)
    builder.join(main="Mend the parser.", scout="Find the bug.", planner="Plan the change.", slow="Wait for ever.")
    _work(builder)
    _crash(builder)
    _plan(builder)
    _mail(builder)
    builder.bill(
        line("main", at=BEGAN + 3, prefix="01", write_5m=9_000, input=40, output=300),
        line("main", at=BEGAN + 8, prefix="02", expected_read=9_000, read=9_000, write_5m=800, output=120),
        line("scout", at=BEGAN + 12, parent="main", prefix="03", expected_read=9_800, read=9_800, output=80),
        line("scout", at=BEGAN + 21, parent="main", prefix="04", expected_read=9_900, read=2_000, write_5m=8_000),
        line("planner", at=BEGAN + 19, parent="main", prefix="05", write_5m=4_000, output=500),
        line("planner", at=BEGAN + 30, parent="main", purpose="summary", prefix="06", read=4_000, output=9),
    )
    builder.agent(21, "scout", CacheBroke(cause="tools", detail="Bash changed", read_before=9_900, read_now=2_000))
    builder.becomes(40, "main", "done")
    return builder.write_all()


def _work(builder: SessionBuilder) -> None:
    builder.becomes(0, "main", "starting")
    builder.becomes(1, "main", "running")
    builder.agent(1, "main", STARTED)
    builder.add_reply(3, "main", "I begin.", reply(1))
    builder.agent(5, "main", ToolEnded(id="a", name="Read", is_error=False, seconds=0.5, characters=9))
    builder.agent(6, "main", Retrying(error="overloaded", seconds=1.5))
    builder.add_reply(8, "main", "Others go on.", reply(2))
    builder.becomes(9, "main", "waiting", "3 agents")
    builder.becomes(33, "main", "running")
    builder.agent(35, "main", COMPACTED)
    builder.agent(39, "main", FINISHED)


def _crash(builder: SessionBuilder) -> None:
    builder.becomes(9, "scout", "starting")
    builder.becomes(10, "scout", "running")
    builder.agent(13, "scout", ProgressSummarized(text="Reading parser.py", turn=1, seconds=0.4, cost_usd="0.0001"))
    failed = ToolEnded(id="b", name="Bash", is_error=True, seconds=2.0, characters=9, reason="exit code 1")
    builder.agent(15, "scout", failed)
    builder.becomes(16, "scout", "killed", "Its process was ended by SIGKILL.")
    builder.becomes(17, "scout", "starting", "again, 1 of 2: Its process was ended by SIGKILL.", 2)
    builder.becomes(18, "scout", "running", "", 2)
    builder.agent(24, "scout", FINISHED)
    builder.becomes(25, "scout", "done", "", 2)
    builder.becomes(10, "slow", "running")
    builder.becomes(26, "slow", "stalled", "no sign of life for 10 seconds")
    builder.becomes(28, "slow", "killed", "It showed no sign of life for 10 seconds.")


def _plan(builder: SessionBuilder) -> None:
    builder.becomes(11, "planner", "running")
    asked: dict[str, Any] = {
        "what": "plan",
        "name": "planner",
        "incarnation": 1,
        "by": "human",
        "subject": "Rewrite it all",
    }
    builder.becomes(14, "planner", "plan_pending", "a yes")
    builder.root(14, ApprovalAsked(id="p1", **asked))
    builder.root(15, ApprovalRejected(id="p1", by="approvals/p1.json", reason="an answer in a file proves nothing"))
    decided = {"name": "planner", "by": "human"}
    builder.root(18, ApprovalDecided(id="p1", verdict="rejected", feedback="Smaller, please.", **decided))
    builder.becomes(18, "planner", "running")
    builder.becomes(22, "planner", "plan_pending", "a yes")
    builder.root(22, ApprovalAsked(id="p2", **{**asked, "subject": "Change one line"}))
    builder.root(27, ApprovalDecided(id="p2", verdict="approved", **decided))
    builder.becomes(27, "planner", "idle")
    builder.becomes(36, "planner", "done")


def _mail(builder: SessionBuilder) -> None:
    told = builder.make_message(11, "main", "scout", "Look at line 7.", summary="where to look")
    done = TaskNotification(status="completed", summary="The task is done.", result="It was line 8.").to_body()
    report = builder.make_message(24, "scout", "main", done, kind="task_notification")
    late = builder.make_message(26, "main", "slow", "Are you there?")
    waiting = builder.make_message(37, "main", "planner", "Thank you.")
    builder.mail.store(told, report, waiting)
    builder.add_delivery(12, "scout", "mail", told.id)
    builder.add_delivery(33, "main", "mail", report.id)
    inside = '<message from="planner" sender="peer" kind="message" id="q1" session="s">\nof one process\n</message>'
    builder.add_delivery(34, "main", inside, "q1")
    builder.mail.add_dead_letter(late, detail="nobody took it")
