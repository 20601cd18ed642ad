"""Status of agents, published by the root on the roster and to their parents."""

from collections.abc import Callable
from typing import Literal

import attrs

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.task_report import send_report
from coterie.mailbox.contract import MemberState
from coterie.mailbox.envelope import MessageId, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.router import OutgoingMessage
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.supervisor.agent_outcome import AgentOutcome

ROOT_NAME = "root"
"""What the root calls itself in events and in mail."""


@attrs.frozen
class StatusPublisher:
    """Speaks for the root of one session. What cannot be stored is an event, and the work goes on."""

    _office: SessionMail
    _tell: Callable[[Event], None]

    @property
    def sender(self) -> Sender:
        """The root, in mail."""
        return Sender(name=ROOT_NAME, incarnation=1, session=self._office.session.id, kind="system")

    async def report(self, spec: AgentSpec, outcome: AgentOutcome, left: str = "") -> None:
        """Tell the parent what became of an agent that did not end well, and what it has *left*.

        Dropped where it arrives, if the agent had told it before.
        """
        if spec.parent is None:
            return
        summary = f"{outcome.summary} {left}".rstrip()
        status: Literal["failed", "killed"] = "failed" if outcome.end == "failed" else "killed"
        report = TaskNotification(status=status, summary=summary, agent=spec.name)
        await self._report(spec.name, spec.parent, spec.report, report)

    async def publish_failure(self, name: str, parent: str, id_: MessageId, reason: str) -> None:
        """Tell *parent*, who expects the report *id_*, that *name* could not be run on after a crash."""
        summary = f"The session crashed, and it could not be taken up again: {reason}"
        await self._report(name, parent, id_, TaskNotification(status="failed", summary=summary, agent=name))

    async def _report(self, name: str, parent: str, id_: MessageId, report: TaskNotification) -> None:
        try:
            await send_report(parent, report, id_, self._office.router(), self.sender)
        except MailboxError as exc:
            self._tell(LayerFailed(layer="mail", reason=f"{parent} could not be told of {name}: {exc}"))

    async def send_text(self, name: str, text: str) -> None:
        """Send *name* a message."""
        try:
            await self._office.router().send(self.sender, OutgoingMessage(to=name, body=text))
        except MailboxError as exc:
            self._tell(LayerFailed(layer="mail", reason=f"{name} could not be written to: {exc}"))

    async def set_state(self, name: str, state: MemberState) -> None:
        """Let the roster say what *name* does now."""
        try:
            await self._office.roster.set_state(name, state)
        except MailboxError as exc:
            self._tell(LayerFailed(layer="mail", reason=str(exc)))
