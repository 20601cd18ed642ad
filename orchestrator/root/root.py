"""Root of a session: owns its supervisor of agents, model call gateway, mail, and connections to clients."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

import attrs
import trio

from coterie.agents.definitions.team_definition import load_recorded_team
from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Event, Noticed
from coterie.agents.events.event_log import EventLog
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import Budgeted
from coterie.agents.permissions.types import UserPrompter
from coterie.agents.root_link.remote_services import RemotePrompter
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.agents.root_link.wire_format import WireMessage
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.settings import AgentSettings, McpSettings
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.bridge.listener import open_bridge
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable
from coterie.mailbox.transports.bridge.transport import open_forwarder
from coterie.mailbox.transports.file.log_reader import snapshot_pending
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.orchestrator.approvals.approval_policy import ApprovalDecision
from coterie.orchestrator.approvals.service import open_approvals
from coterie.orchestrator.control.requests import (
    AgentStarted,
    ClientMessage,
    CompactAgent,
    ControlAnswer,
    ControlRequest,
    DecideApproval,
    Detach,
    EndSession,
    GetStopTime,
    InterruptTurn,
    MoveToBackground,
    ReleaseHeldMessage,
    RequestDone,
    ResendDeadLetter,
    SendMail,
    SpawnAgent,
    StopAgent,
    StopTime,
    control_address,
)
from coterie.orchestrator.control.server import open_control_server, open_listener
from coterie.orchestrator.control.user_mail import handle_mail_request
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger
from coterie.orchestrator.gateway.ledger_recorder import (
    PENDING_CALLS,
    LedgerRecorder,
    PendingCalls,
    settle_interrupted_calls,
)
from coterie.orchestrator.mcp.host_supervisor import McpHostSupervisor, open_mcp
from coterie.orchestrator.processes.child_process import run_reaper
from coterie.orchestrator.processes.cleanup_supervisor import CleanupSupervisor, open_cleanup_daemon
from coterie.orchestrator.processes.process_starters import open_zygote_starter
from coterie.orchestrator.session.root_lock import ROOT_RECORD, open_root_record, remove_root_record
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.supervisor.agent_run import AgentRun, AgentRuns
from coterie.orchestrator.supervisor.agent_status import ROOT_NAME, AgentOutcome, StatusPublisher
from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.orchestrator.supervisor.supervisor import Supervisor
from coterie.process_identity import SESSION_VARIABLE
from coterie.session_directory import EVENT_LOG, MAIN, SessionDirectory, mail_directory


@attrs.frozen(kw_only=True)
class SessionRoot:
    """Session that this process has opened as its root, so that agents can be started. Created by `open_root`."""

    session: SessionDirectory
    supervisor: Supervisor
    gateway: ModelGateway
    cleanup: CleanupSupervisor
    """Supervisor of the cleanup daemon, which kills the session's other processes if the root is killed."""
    mcp: McpHostSupervisor
    """Supervisor of the MCP host, the process that runs the MCP servers of the session."""

    async def run(self, spec: AgentSpec) -> AgentOutcome:
        """Run the agent of *spec*, usually the lead, and all agents below it to their end; return how it ended.

        Starts members of its team that were never started, and resumes unfinished agents of a killed root; an offline
        job, such as a compaction, does neither. Raises `ConfigInvalid` and the errors of `Supervisor.run_agent`.
        """
        if spec.job is not None:
            return await self.supervisor.run_agent(AgentRun(spec=spec))
        await self.supervisor.unfinished.load()
        await self.mcp.wait_listed()
        team = await trio.to_thread.run_sync(load_recorded_team, self.session)
        known = {*self.supervisor.services.mail.roster.members(), *self.supervisor.unfinished.names}
        # All members in a new session, some after an early crash.
        missing = () if team is None else tuple(each for each in team.requests() if each.name not in known)
        return await self.supervisor.run_agent(AgentRun(spec=spec, team=missing))

    async def handle_request(self, request: ControlRequest) -> ControlAnswer:
        """Carry out *request* of a client, such as to stop an agent; return the answer. Raises `AgentError`."""
        match request:
            case StopAgent():
                await self.supervisor.stop(request.name)
            case MoveToBackground():
                self.supervisor.runs.move_to_background(request.name)
            case CompactAgent():
                return await self.supervisor.runs.find(request.name).compact(request.pivot())
            case DecideApproval():
                decision = ApprovalDecision(id=request.id, approve=request.approve, feedback=request.feedback)
                await self.supervisor.services.approvals.decide(decision)
            case GetStopTime():
                return StopTime(seconds=self.supervisor.stop_time)
            case SpawnAgent():
                return AgentStarted(spawned=await self.supervisor.spawn_for(MAIN, request.wanted))
            case SendMail() | ResendDeadLetter() | ReleaseHeldMessage():
                return await handle_mail_request(self.supervisor.services.mail, request)
        return RequestDone()


DEFAULT_LIMITS = AgentSettings()


@asynccontextmanager
async def open_root(
    session: SessionDirectory,
    *,
    budget: Decimal | None = None,
    server: str | None = None,
    user: UserPrompter | None = None,
    asks_later: bool = False,
    agents: AgentSettings = DEFAULT_LIMITS,
    mcp: McpSettings | None = None,
    grace: float = 5.0,
) -> AsyncIterator[SessionRoot]:
    """Make this process the root of *session* and start its helper processes; the end of the block ends all agents.

    *budget* limits all agents together, in dollars, including the spending of earlier roots. *server* is the URL of the
    embedded API server, if it replaces the real API. *user* answers permission prompts. Without *user*, they wait for
    an answer by a command if *asks_later* is set, and are denied otherwise. Without *mcp* no MCP server is started. A
    stopped process gets *grace* seconds to end. Call this on the main thread, in a process that starts no other
    processes. Raises `ConfigInvalid` if another process is the root, `StartFailed`, and `OSError`.
    """
    clock = Clock.from_environment()
    async with AsyncExitStack() as stack:
        root = stack.enter_context(open_root_record(session, clock))
        session.scratch.mkdir(mode=0o700, exist_ok=True)
        listener = await stack.enter_async_context(open_listener(control_address(root)))
        log = stack.enter_context(EventLog.open(session.directory / EVENT_LOG, ROOT_NAME, clock))
        mail = stack.enter_context(await _open_session_mail(session, clock, log.emit))
        environment = {**os.environ, SESSION_VARIABLE: session.id}
        mark, record = f"{SESSION_VARIABLE}={session.id}", session.directory / ROOT_RECORD
        cleanup = await stack.enter_async_context(open_cleanup_daemon(mark, record, environment))
        # Removed before the daemon is released: if the root is killed in between, nothing else would remove the record.
        stack.callback(remove_root_record, session, root)
        gateway = await _open_gateway(session, clock, budget, log.emit, stack)
        await _open_bridges(mail, log.emit, stack)
        servers = await stack.enter_async_context(open_mcp(session, mcp, environment, log.emit))
        starter = await stack.enter_async_context(open_zygote_starter(environment=environment))
        status = StatusPublisher(mail, log.emit)
        runs = AgentRuns()
        approvals = await open_approvals(mail, status.sender, log.emit, runs.wake_lead, user)
        services = RootServices(
            mail=mail,
            starter=starter,
            gateway=gateway,
            approvals=approvals,
            status=status,
            emit=log.emit,
            clock=clock,
            server=server,
            mcp=servers,
            user=user,
            asks_later=asks_later,
        )
        supervisor = Supervisor.build(services, runs, agents, grace=grace)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_reaper)
            nursery.start_soon(cleanup.supervise, lambda reason: log.emit(LayerFailed(layer="cleanup", reason=reason)))
            nursery.start_soon(servers.supervise)
            opened = SessionRoot(session=session, supervisor=supervisor, gateway=gateway, cleanup=cleanup, mcp=servers)
            async with open_control_server(listener, opened.handle_request):
                yield opened
            nursery.cancel_scope.cancel()


async def _open_session_mail(session: SessionDirectory, clock: Clock, emit: Callable[[Event], None]) -> SessionMail:
    """Open the mail of *session*; later mail must be signed, and mail that is unread now is trusted without signature.

    Call this before any agent starts, because signatures protect mailboxes against models and their tools. Mail stored
    while no root runs is from the user, or from a hostile process of this user, which no key can stop.
    """
    try:
        believed = await trio.to_thread.run_sync(snapshot_pending, mail_directory(session))
    except MailboxFailed as exc:
        raise ConfigInvalid("session", str(exc)) from exc
    return SessionMail.open(
        session,
        clock,
        SessionKeys.new(),
        believed=believed,
        on_untrusted=lambda letter: emit(Noticed.untrusted_mail(letter.mailbox, letter.detail)),
    )


async def _open_gateway(
    session: SessionDirectory,
    clock: Clock,
    budget: Decimal | None,
    emit: Callable[[Event], None],
    stack: AsyncExitStack,
) -> ModelGateway:
    """Open the gateway; it admits model calls while all costs of the session are within *budget*, and records costs."""
    earlier = await trio.to_thread.run_sync(settle_interrupted_calls, session.directory)
    ledger = stack.enter_context(Ledger.open(session.directory / LEDGER))
    pending = stack.enter_context(PendingCalls.open(session.directory / PENDING_CALLS))
    recorder = LedgerRecorder(ledger, clock, emit, pending)
    if budget is not None or session.starts > 1:
        emit(Budgeted(dollars=None if budget is None else format(budget, "f")))
    return ModelGateway(clock, budget, earlier=earlier, started=recorder.begin, settled=recorder.record)


async def _open_bridges(mail: SessionMail, emit: Callable[[Event], None], stack: AsyncExitStack) -> None:
    """Start to accept mail of other sessions on a socket, and to forward the unsent mail of this session to them."""
    try:
        bridge = open_bridge(
            mail.session.id, mail.directory, mail.accept_inbound, clock=mail.clock, bury=mail.dead_letters.add
        )
        await stack.enter_async_context(bridge)
    except BridgeUnusable as exc:
        raise ConfigInvalid("session", f"{mail.session.id} cannot open its mail socket: {exc}") from exc
    forwarding = open_forwarder(mail.bridge, lambda exc: emit(LayerFailed(layer="mail", reason=str(exc))))
    await stack.enter_async_context(forwarding)


@attrs.define(eq=False)
class LaunchClient(RequestChannel[ClientMessage]):
    """The root's end of the connection to the launch client, the client process that started the root."""

    prompter: RemotePrompter = attrs.field(default=attrs.Factory(RemotePrompter, takes_self=True), init=False)

    def send(self, message: WireMessage) -> None:
        """Queue *message* for the launch client. No-op if the client has disconnected."""
        with contextlib.suppress(ControlLost):
            super().send(message)

    async def listen(self, root: SessionRoot, stop: Callable[[], None]) -> None:
        """Handle the launch client's messages until it detaches. Call *stop* if it ends the session or disconnects."""
        try:
            while (message := await self.receive()) is not None:
                match message:
                    case InterruptTurn():
                        root.supervisor.interrupt(MAIN)
                    case EndSession():
                        root.supervisor.kill_immediately()
                        stop()
                    case Detach():
                        return
            stop()
        except ControlLost:
            stop()
        finally:
            self.prompter.leave()


def lead_spec(request: SessionRequest) -> AgentSpec:
    """Return the start parameters for the agent of *request*: the lead, or the agent of the offline job `chore`."""
    return AgentSpec(
        name=request.name,
        task=request.task,
        model=request.model,
        settings=request.settings,
        definition=request.definition,
        is_bare=request.is_bare,
        job=request.chore,
    )
