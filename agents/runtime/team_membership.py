"""Membership of an agent in its team: idle notices and shutdown responses."""

import attrs

from coterie.agents.loop.agent import Agent
from coterie.agents.loop.run_result import EndReason
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.message_bodies import Idle, ShutdownResponse
from coterie.mailbox.router import OutgoingMessage, Router


@attrs.frozen(kw_only=True)
class TeamMembership:
    """Sends the team messages of one agent."""

    router: Router
    sender: Sender
    lead: str | None = None
    """Recipient of idle notices; None to send none."""

    async def notify_idle(self, agent: Agent, outcome: EndReason | None) -> None:
        """Send the lead an idle notice after a run with the reason *outcome*.

        A notice that cannot be stored is an event.
        """
        if self.lead is not None:
            body = Idle(outcome=outcome)
            await self._report(agent, OutgoingMessage(to=self.lead, body=body.to_body(), kind=body.kind))

    async def respond(self, agent: Agent, request: Envelope, response: ShutdownResponse) -> None:
        """Send *response* to the sender of *request*; returns when it is stored, or after an event with the error.

        The user and the root have no mailbox; they see the end of the run instead.
        """
        if request.sender.kind not in ("human", "system"):
            body = response.to_body()
            await self._report(
                agent, OutgoingMessage(to=request.sender.name, body=body, kind=response.kind, in_reply_to=request.id)
            )

    async def _report(self, agent: Agent, message: OutgoingMessage) -> None:
        try:
            await self.router.send(self.sender, message)
        except MailboxError as exc:
            agent.report_failure("mail", exc)
