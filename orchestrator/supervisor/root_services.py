"""Services of the root that its agents are started with and served by, and the time limits of their processes."""

import os
from collections.abc import Callable, Mapping

import attrs

from coterie.agents.events.agent_events import Event
from coterie.agents.permissions.types import UserPrompter
from coterie.agents.runtime.agent_spec import Services
from coterie.clock import Clock
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.service import ApprovalService
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.mcp.host_supervisor import McpHostSupervisor
from coterie.orchestrator.processes.process_start import ProcessStarter
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.stall_watch import STALL_SECONDS


@attrs.frozen(kw_only=True)
class RootServices:
    """Services of the root of one session, the same for all of its agents."""

    mail: SessionMail
    starter: ProcessStarter
    gateway: ModelGateway
    approvals: ApprovalService
    status: StatusPublisher
    emit: Callable[[Event], None]
    clock: Clock
    server: str | None = None
    """URL of the embedded server, where that plays the model."""
    mcp: McpHostSupervisor | None = None
    """Owner of the MCP servers; None where there are none."""
    user: UserPrompter | None = None
    """Prompter that is asked for permissions; None refuses, unless *asks_later*."""
    asks_later: bool = False
    """True if questions without a prompter wait until the user answers from a shell."""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    """Environment of agent processes."""

    @property
    def of_agents(self) -> Services:
        """Services that an agent process connects to, if it is started now."""
        keys = self.mail.keys
        return Services(
            session_id=self.mail.session.id,
            api_url=self.server,
            mail_key=None if keys is None else keys.to_hex(),
            mcp=None if self.mcp is None else self.mcp.access,
            can_prompt=self.user is not None or self.asks_later,
        )


@attrs.frozen(kw_only=True)
class ProcessLimits:
    """Time limits of an agent process."""

    grace: float = 5.0
    """Seconds that the process has to end after the shutdown request, and again after SIGTERM."""
    stall_after: float = STALL_SECONDS
    """Seconds without a sign of life after which a busy agent is stopped, as if it had crashed."""
