"""Membership of an agent in its team: idle notices and shutdown responses."""

import attrs

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.run_result import EndReason
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.message_bodies import Idle, ShutdownResponse
from coterie.mailbox.router import OutgoingMessage, Router


@attrs.frozen(kw_only=True)
class TeamMembership:
    """How one agent sends, and whom it reports to."""

    router: Router
    sender: Sender
    lead: str | None = None
    """Who is told when it is idle; None for nobody."""

    async def notify_idle(self, agent: Agent, outcome: EndReason | None) -> None:
        """Let the lead know that there is nothing to do, after a run that came to *outcome*.

        When that cannot be stored it is an event, and the agent goes on.
        """
        if self.lead is not None:
            body = Idle(outcome=outcome)
            await self._report(agent, OutgoingMessage(to=self.lead, body=body.to_body(), kind=body.kind))

    async def respond(self, agent: Agent, request: Envelope, response: ShutdownResponse) -> None:
        """Answer who made *request*; returns when it is stored, or an event says why it is not.

        The human and the root, who have no mailbox, see it by the end of the run.
        """
        if request.sender.kind not in ("human", "system"):
            body = response.to_body()
            await self._report(
                agent, OutgoingMessage(to=request.sender.name, body=body, kind=response.kind, in_reply_to=request.id)
            )

    async def _report(self, agent: Agent, draft: OutgoingMessage) -> None:
        try:
            await self.router.send(self.sender, draft)
        except MailboxError as exc:
            agent.emit(LayerFailed(layer="mail", reason=str(exc)))
