"""Services that the root process provides to all agents of a session, and the time limits of agent processes."""

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
    """Services that the root of one session provides to all its agents."""

    mail: SessionMail
    starter: ProcessStarter
    gateway: ModelGateway
    approvals: ApprovalService
    status: StatusPublisher
    emit: Callable[[Event], None]
    clock: Clock
    server: str | None = None
    """URL of the embedded API server; None for the real API."""
    mcp: McpHostSupervisor | None = None
    """Supervisor of the process that runs the MCP servers; None if the session has none."""
    user: UserPrompter | None = None
    """Asks the user for permissions. If None, permissions are denied, unless `asks_later` is set."""
    asks_later: bool = False
    """True if, without `user`, permission prompts wait until the user answers from a shell."""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    """Environment variables for agent processes."""

    @property
    def of_agents(self) -> Services:
        """Addresses and keys of the services, for an agent process that is started now."""
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
    """Seconds that a process has to end after a shutdown request, and again after SIGTERM."""
    stall_after: float = STALL_SECONDS
    """Seconds without progress after which a busy agent is stopped; the supervisor treats this as a crash."""
