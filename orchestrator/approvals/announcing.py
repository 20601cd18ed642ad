"""How the lead learns of a plan that it is to judge: by a message of the root, which wakes it."""

import attrs

from coterie.mailbox.envelope import Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.ids import MessageId
from coterie.mailbox.lifecycle import PlanApprovalRequest
from coterie.mailbox.router import Draft, Router
from coterie.orchestrator.approvals.record import Approval
from coterie.orchestrator.session import MAIN


@attrs.frozen
class LeadPost:
    """Writes to the lead of one session."""

    _router: Router
    _sender: Sender
    """The root."""

    async def ask(self, approval: Approval) -> str | None:
        """Store the question for the lead; it arrives once, however often it is stored. Why it cannot be, or None."""
        claim = approval.claim
        body = PlanApprovalRequest(plan=claim.plan, agent=claim.agent, files=claim.files)
        draft = Draft(to=MAIN, body=body.to_body(), kind=body.kind, id=MessageId(approval.id), time_to_live=None)
        try:
            await self._router.send(self._sender, draft)
        except MailboxError as exc:
            return str(exc)
        return None
