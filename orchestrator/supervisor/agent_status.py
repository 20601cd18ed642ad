"""How an agent's process ended, and messages of the root about agents: states on the roster, reports to parents."""

import signal
from collections.abc import Callable
from typing import Literal, get_args

import attrs

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.task_report import send_report
from coterie.mailbox.contract import MemberState
from coterie.mailbox.envelope import MessageId, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.router import OutgoingMessage
from coterie.mailbox.transports.session_mail import SessionMail

STDERR_LOG = "stderr.log"
"""Name of the file in an agent's directory that receives the standard error of its process."""

ProcessEnd = Literal["done", "failed", "killed"]
PROCESS_ENDS: tuple[str, ...] = get_args(ProcessEnd)


@attrs.frozen(kw_only=True)
class AgentOutcome:
    """How one process of an agent ended, and why."""

    name: str
    incarnation: int
    end: ProcessEnd
    status: int
    """Exit status of the process, or the negative number of the signal that ended it."""
    failure: RunFailed | None = None
    """Failure that the agent itself reported before the end; None if it reported none."""
    why: str = ""
    """Sentences about causes that only the root knows, such as a stall or a stop; empty if there are none."""
    is_shared: bool = False
    """True if the agent was a task in the process of its parent."""

    @property
    def summary(self) -> str:
        """Causes of the end as sentences; empty for a success without a special cause."""
        return " ".join(filter(None, (self.why, self._cause)))

    @property
    def _cause(self) -> str:
        if self.end == "killed" and self.is_shared:
            return "Its task in the process of its parent was killed."
        if self.end == "killed":
            return f"Its process was ended by {signal.Signals(-self.status).name}."
        if self.failure is not None:
            return f"It could not do its work: {self.failure.reason}."
        return "" if self.end == "done" else f"Its process ended with status {self.status}; {STDERR_LOG} says more."


ROOT_NAME = "root"
"""Name of the root process as the source of events and the sender of mail."""


@attrs.frozen
class StatusPublisher:
    """Publisher of agents' states and failures in the name of the root. An error of the mail becomes only an event."""

    _mail: SessionMail
    _emit: Callable[[Event], None]

    @property
    def sender(self) -> Sender:
        """Sender of the mail that the root itself writes."""
        return Sender(name=ROOT_NAME, incarnation=1, session=self._mail.session.id, kind="system")

    async def report(self, spec: AgentSpec, outcome: AgentOutcome, left: str = "") -> None:
        """Report to an agent's parent that it failed or was killed; *left* is a sentence about work in its worktree.

        If the agent has sent its own report, the parent drops this report, because both have the same id.
        """
        if spec.parent is None:
            return
        summary = f"{outcome.summary} {left}".rstrip()
        status: Literal["failed", "killed"] = "failed" if outcome.end == "failed" else "killed"
        report = TaskNotification(status=status, summary=summary, agent=spec.name)
        await self._report(spec.name, spec.parent, spec.report, report)

    async def publish_failure(self, name: str, parent: str, id_: MessageId, reason: str) -> None:
        """Report to *parent*, with report id *id_*, that agent *name* could not be resumed after a crash."""
        summary = f"The session crashed, and {name} could not be resumed: {reason}"
        await self._report(name, parent, id_, TaskNotification(status="failed", summary=summary, agent=name))

    async def _report(self, name: str, parent: str, id_: MessageId, report: TaskNotification) -> None:
        try:
            await send_report(parent, report, id_, self._mail.router(), self.sender)
        except MailboxError as exc:
            self._emit(LayerFailed(layer="mail", reason=f"agent {parent} got no report on the end of {name}: {exc}"))

    async def send_text(self, name: str, text: str) -> None:
        """Send *text* as a mail message from the root to agent *name*."""
        try:
            await self._mail.router().send(self.sender, OutgoingMessage(to=name, body=text))
        except MailboxError as exc:
            self._emit(LayerFailed(layer="mail", reason=f"a message of the root to agent {name} was not sent: {exc}"))

    async def set_state(self, name: str, state: MemberState) -> None:
        """Set the state of agent *name* on the roster, the list of the session's agents."""
        try:
            await self._mail.roster.set_state(name, state)
        except MailboxError as exc:
            self._emit(LayerFailed(layer="mail", reason=str(exc)))
