"""Membership of an agent in its team: idle notices, shutdown responses and requests to others."""

from typing import Generic, TypeVar

import attrs

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.layers.layer7_team_protocol import ReplyMatcher
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.run_result import EndReason
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.message_bodies import Idle, MessageBody, ShutdownResponse
from coterie.mailbox.router import OutgoingMessage, Router

Reply = TypeVar("Reply", bound=MessageBody)


@attrs.frozen(kw_only=True)
class ReplyReceived(Generic[Reply]):
    """What came of a question."""

    sender: Sender
    """Who answered; not always who was asked."""
    body: Reply


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

    async def request(
        self, mail: Messaging, to: str, request: MessageBody, answer: type[Reply]
    ) -> ReplyReceived[Reply]:
        """Send *request* to the agent *to*, and wait for the *answer* to it, for as long as it takes.

        Only a message that names this request, of the right kind and from somebody who may send that kind, is the
        answer; all other mail waits for the conversation as ever. Cancellation leaves the request where it is, and an
        answer that comes later is mail as any other. Raises `SendRefused` and `MailboxFailed`.
        """
        [posted] = await self.router.send(
            self.sender, OutgoingMessage(to=to, body=request.to_body(), kind=request.kind)
        )
        assert posted.receipt is not None, "a refusal of a single recipient is raised"
        expected = ReplyMatcher(request=posted.receipt.id, asked=to, kind=answer.kind)
        envelope = await mail.wait_for_answer(expected)
        return ReplyReceived(sender=envelope.sender, body=answer.from_body(envelope.body))

    async def _report(self, agent: Agent, draft: OutgoingMessage) -> None:
        try:
            await self.router.send(self.sender, draft)
        except MailboxError as exc:
            agent.emit(LayerFailed(layer="mail", reason=str(exc)))
