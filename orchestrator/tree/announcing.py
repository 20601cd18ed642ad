"""What the root says of an agent: on the roster, and to its parent, if the agent could not tell that itself."""

from collections.abc import Callable

import attrs

from coterie.agents.events import Event, LayerFailed
from coterie.mailbox.contract import MemberState
from coterie.mailbox.envelope import Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.lifecycle import TaskNotification
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.tree.charge import Outcome
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.reporting import report_to

ROOT = "root"
"""What the root calls itself in events and in mail."""


@attrs.frozen
class Announcer:
    """Speaks for the root of one session. What cannot be stored is an event, and the work goes on."""

    _office: PostOffice
    _tell: Callable[[Event], None]

    @property
    def sender(self) -> Sender:
        """The root, in mail."""
        return Sender(name=ROOT, incarnation=1, session=self._office.session.id, kind="system")

    async def report(self, duty: Duty, outcome: Outcome, left: str = "") -> None:
        """Tell the parent what became of an agent that did not end well, and what it has *left*.

        Dropped where it arrives, if the agent had told it before.
        """
        if duty.parent is None:
            return
        summary = f"{outcome.words} {left}".rstrip()
        report = TaskNotification(status="failed" if outcome.end == "failed" else "killed", summary=summary)
        try:
            await report_to(duty.parent, report, duty.report, self._office.router(), self.sender)
        except MailboxError as exc:
            self._tell(LayerFailed(layer="mail", reason=f"{duty.parent} could not be told of {duty.name}: {exc}"))

    async def set_state(self, name: str, state: MemberState) -> None:
        """Let the roster say what *name* does now."""
        try:
            await self._office.roster.set_state(name, state)
        except MailboxError as exc:
            self._tell(LayerFailed(layer="mail", reason=str(exc)))
