"""Sessions for tests of the board, written with the product's writers."""

import contextlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_log import EventLog
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked, ApprovalDecided, Budgeted
from coterie.clock import Clock
from coterie.mailbox.contract import MemberState
from coterie.mailbox.envelope import Envelope
from coterie.orchestrator.approvals.store import Approval, ApprovalKey, ApprovalStore
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.board_render import BoardPage, render_board
from coterie.orchestrator.cli.live.controller import Selection
from coterie.orchestrator.cli.live.poller import open_poller
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger
from coterie.session_directory import EVENT_LOG, SessionDirectory
from tests.orchestrator.approvals.approval_harness import permission
from tests.orchestrator.approvals.approval_harness import plan as plan_request
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.mail_writer import MailWriter
from tests.orchestrator.session_writer import SessionWriter, open_writer, set_states

SIZES = ((80, 24), (60, 15), (200, 50))
TASK = "Some invoices with a discount are a cent too high. Find out why, mend it, and have it verified."


@attrs.define(eq=False)
class BoardSession:
    """A session and the writers of its files."""

    mail: MailWriter
    _root: EventLog
    _ledger: Ledger
    _open: contextlib.ExitStack
    _writers: dict[str, SessionWriter] = attrs.field(factory=dict)

    @property
    def session(self) -> SessionDirectory:
        return self.mail.session

    def root(self, *events: Event) -> None:
        for event in events:
            self._root.emit(event)

    def agent(self, name: str) -> SessionWriter:
        if name not in self._writers:
            self._writers[name] = self._open.enter_context(open_writer(self.session.directory, name, self.mail.clock))
        return self._writers[name]

    def change(self, name: str, state: Any, what: str = "", **facts: Any) -> None:
        """Write the root's event for a new state of *name*."""
        facts = {"incarnation": 1, "parent": None if name == "main" else "main", **facts}
        self.root(AgentChanged(name=name, state=state, what=what, **facts))

    def ask(self, id_: str, name: str, subject: str, *, by: Any = "human", plan: str = "") -> None:
        """Write a request of *name* for the call *subject* or for a *plan*."""
        if plan:
            claim = plan_request(plan, agent=name, approver=by, files=("a.py",))
        else:
            claim = permission(subject, agent=name, details={"command": subject})
        approval = Approval(id=id_, claim=claim, asked_at=self.mail.clock.now())
        ApprovalStore.of(self.session, ApprovalKey.of_session(self.session.id)).save(approval)
        self.root(ApprovalAsked(id=id_, what=claim.what, name=name, incarnation=1, by=by, subject=approval.subject))

    def decide(self, id_: str, name: str, verdict: Any = "approved", by: str = "human", feedback: str = "") -> None:
        self.root(ApprovalDecided(id=id_, name=name, verdict=verdict, by=by, feedback=feedback))

    def add_cost(self, name: str, parent: str | None = None, **usage: int) -> Decimal:
        """Write a ledger entry of *name*; return its cost."""
        spent = line(name, parent=parent, **usage)
        self._ledger.append(spent)
        return spent.cost_usd

    def send(self, sender: str, to: str, body: str, **facts: Any) -> Envelope:
        """Store a message in the mailbox of *to*."""
        letter = self.mail.make_message(sender, to, body, **facts)
        states: dict[str, MemberState] = {to: "running"}
        set_states(self.session, **states)
        self.mail.store(letter)
        return letter

    def board(self, budget: str | None = None) -> SessionBoard:
        if budget is not None:
            self.root(Budgeted(dollars=budget))
        with open_poller(self.session) as poller:
            return poller.board


@contextmanager
def open_board_session(project: Path, clock: Clock) -> Iterator[BoardSession]:
    """Open a new session of *project* without any process until the block ends."""
    session = SessionDirectory.create(project, clock, task=TASK, model="m")
    with (
        contextlib.ExitStack() as stack,
        EventLog.open(session.directory / EVENT_LOG, "root", clock) as log,
        Ledger.open(session.directory / LEDGER) as ledger,
    ):
        yield BoardSession(MailWriter(session, clock), log, ledger, stack)


def drawn(
    board: SessionBoard, width: int = 80, height: int = 24, *, chosen: Selection | None = None, only: str | None = None
) -> list[str]:
    """Lines of a board on a terminal of this size; fails if they do not fit."""
    console = Console(width=width, height=height, file=io.StringIO(), record=True, highlight=False, markup=False)
    now = max((row.since for row in board.agents.values()), default=0.0) + 5
    lines = render_board(
        board, BoardPage(width=width, height=height, now=now, chosen=chosen, only=only, foot="the foot")
    )
    assert len(lines) == height
    assert max(row.cell_len for row in lines) <= width
    for row in lines:
        console.print(row, soft_wrap=True)
    return [row.rstrip() for row in console.export_text().splitlines()]
