"""The approvals of a session are taken up by its root, before any agent can ask for one."""

from collections.abc import Callable

import trio

from coterie.agents.events import Event
from coterie.agents.permissions import Asker
from coterie.mailbox.envelope import Sender
from coterie.orchestrator.approvals.announcing import LeadPost
from coterie.orchestrator.approvals.approvals import Approvals
from coterie.orchestrator.approvals.key import ApprovalKey
from coterie.orchestrator.approvals.records import Records
from coterie.orchestrator.post_office import PostOffice


async def open_approvals(
    office: PostOffice, root: Sender, tell: Callable[[Event], None], user: Asker | None = None
) -> Approvals:
    """Those of the session of *office*, as an earlier root left them. *root* is who asks the lead.

    Raises `ConfigInvalid` for a key that cannot be used, and `OSError`.
    """
    key = await trio.to_thread.run_sync(ApprovalKey.of_session, office.session.id)
    approvals = Approvals(
        records=Records.of(office.session, key),
        clock=office.clock,
        tell=tell,
        lead=LeadPost(office.router(), root),
        user=user,
    )
    await approvals.restore()
    return approvals
