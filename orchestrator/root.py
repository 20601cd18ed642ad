"""The root of a session: it supervises, keeps the gate and the books, and bridges to other sessions; nothing else."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

import attrs
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Budgeted, Event, EventLog, LayerFailed
from coterie.agents.permissions import Asker
from coterie.agents.spawning import SpawnRequest
from coterie.clock import Clock
from coterie.mailbox.bridge import BridgeUnusable, open_bridge, open_forwarding
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.file import note_waiting
from coterie.orchestrator.approvals.judging import Decision
from coterie.orchestrator.approvals.opening import open_approvals
from coterie.orchestrator.control_socket.reception import open_door, open_reception
from coterie.orchestrator.control_socket.requests import (
    AgentBegun,
    Answer,
    CompactAgent,
    DecideApproval,
    Granted,
    MoveToBackground,
    PostMail,
    ReleaseLetter,
    Request,
    ResendLetter,
    SpawnAgent,
    StopAgent,
    control_address,
)
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.gate import Limits, SessionGate
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.ledger import LEDGER, Books, Ledger
from coterie.orchestrator.ledger.earlier import settle_earlier
from coterie.orchestrator.ledger.under_way import UNDER_WAY, CallsUnderWay
from coterie.orchestrator.mcp.post import McpPost, open_mcp
from coterie.orchestrator.post_office import PostOffice, mail_directory
from coterie.orchestrator.root_record import ROOT_RECORD, open_root_record, strike_off
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.settings.schema import AgentSettings, McpSettings
from coterie.orchestrator.starting import open_warm_starter, run_reaper
from coterie.orchestrator.starting.janitor_post import JanitorPost, open_janitor
from coterie.orchestrator.teams.recording import recorded_team
from coterie.orchestrator.tree.announcing import ROOT, Announcer
from coterie.orchestrator.tree.charge import Outcome
from coterie.orchestrator.tree.compacting import compact_agent
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.remains import SESSION_VARIABLE
from coterie.orchestrator.tree.supervisor import Supervisor
from coterie.orchestrator.user_mail import serve_mail


@attrs.frozen(kw_only=True)
class Root:
    """A session whose agents can be started. Made by `open_root`."""

    session: Session
    supervisor: Supervisor
    gate: SessionGate
    janitor: JanitorPost
    """Who cleans up after this process if it is killed."""
    servers: McpPost
    """Who holds the MCP servers."""

    async def run(self, order: Order) -> Outcome:
        """Run one agent, and all that it starts, to the end, as `Supervisor.run_agent` does.

        The members of the session's team are started for its lead. Whom an earlier root was running when it was killed
        is run on. Neither for a chore, which is one agent's alone. Raises `ConfigInvalid` too.
        """
        if order.chore is None:
            await self.supervisor.open_orders.load()
            await self.servers.listed()
            order = attrs.evolve(order, team=await self._not_started())
        return await self.supervisor.run_agent(order)

    async def _not_started(self) -> tuple[SpawnRequest, ...]:
        """The members of the team that nobody has started yet: all of them, or those that a crash was faster than."""
        team = await trio.to_thread.run_sync(recorded_team, self.session)
        known = {*self.supervisor.office.roster.members(), *self.supervisor.open_orders.names}
        return () if team is None else tuple(request for request in team.requests() if request.name not in known)

    def interrupt_lead(self) -> None:
        """End the turn that the lead is at."""
        self.supervisor.interrupt(MAIN)

    def hurry(self) -> None:
        """Give nobody time any more: who is stopped from now on is killed at once."""
        self.supervisor.grace = 0.0

    async def serve(self, request: Request) -> Answer:
        """Do what the user asks for from a shell. Raises `NotAtWork`, `SpawnRefused` and `AnswerInvalid`."""
        match request:
            case StopAgent():
                await self.supervisor.stop(request.name)
            case MoveToBackground():
                self.supervisor.move_to_background(request.name)
            case CompactAgent():
                return await compact_agent(self.supervisor.tenures, request.name, request.pivot())
            case DecideApproval():
                decision = Decision(id=request.id, approve=request.approve, feedback=request.feedback)
                await self.supervisor.approvals.decide(decision)
            case SpawnAgent():
                return AgentBegun(spawned=await self.supervisor.spawn_for(MAIN, request.wanted))
            case PostMail() | ResendLetter() | ReleaseLetter():
                return await serve_mail(self.supervisor.office, request)
        return Granted()


@asynccontextmanager
async def open_root(
    session: Session,
    *,
    budget: Decimal | None = None,
    server: str | None = None,
    user: Asker | None = None,
    asks_later: bool = False,
    agents: AgentSettings | None = None,
    mcp: McpSettings | None = None,
    grace: float = 5.0,
) -> AsyncIterator[Root]:
    """Be the root of *session* until the block ends; then none of its agents is left.

    *budget* is for all of them together, in dollars, with what earlier roots of the session have spent. *server* is the
    URL of the embedded server, where that plays the model; *user* is asked for permissions, or else, where it
    *asks_later*, whoever answers from a shell; *agents* is what the user has set for all of them, *mcp* what for MCP
    servers, of which there are none without. Enter it on the main thread of a process that starts no others meanwhile.
    Raises `ConfigInvalid` if another process is the root, `StartFailed`, and `OSError`.
    """
    clock = Clock.from_environment()
    async with AsyncExitStack() as stack:
        root = stack.enter_context(open_root_record(session, clock))
        session.scratch.mkdir(mode=0o700, exist_ok=True)
        door = await stack.enter_async_context(open_door(control_address(root)))
        log = stack.enter_context(EventLog.open(session.directory / EVENT_LOG, ROOT, clock))
        office = stack.enter_context(await _open_office(session, clock, log.tell))
        environment = {**os.environ, SESSION_VARIABLE: session.id}
        mark, record = f"{SESSION_VARIABLE}={session.id}", session.directory / ROOT_RECORD
        janitor = await stack.enter_async_context(open_janitor(mark, record, environment))
        # Before the farewell: of a root that is killed between the two nobody would ever strike off the record.
        stack.callback(strike_off, session, root)
        gate = await _open_gate(session, clock, budget, log.tell, stack)
        await _open_bridges(office, log.tell, stack)
        servers = await stack.enter_async_context(open_mcp(session, mcp, environment, log.tell))
        starter = await stack.enter_async_context(open_warm_starter(environment=environment))
        approvals = await open_approvals(office, Announcer(office, log.tell).sender, log.tell, user)
        if budget is not None or session.starts > 1:
            log.tell(Budgeted(dollars=None if budget is None else format(budget, "f")))
        supervisor = Supervisor(
            office=office,
            starter=starter,
            gate=gate,
            tell=log.tell,
            clock=clock,
            approvals=approvals,
            server=server,
            user=user,
            asks_later=asks_later,
            grace=grace,
            mcp=servers,
        )
        approvals.free_lead = supervisor.free_lead
        if agents is not None:
            supervisor.follow(agents)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_reaper)
            nursery.start_soon(janitor.keep, lambda reason: log.tell(LayerFailed(layer="janitor", reason=reason)))
            nursery.start_soon(servers.keep)
            opened = Root(session=session, supervisor=supervisor, gate=gate, janitor=janitor, servers=servers)
            async with open_reception(door, opened.serve):
                yield opened
            nursery.cancel_scope.cancel()


async def _open_office(session: Session, clock: Clock, tell: Callable[[Event], None]) -> PostOffice:
    """The mail of *session*, signed from now on; what waits there is believed, as nobody could forge it yet.

    Enter it before any agent begins: the model and its tools are who mail is kept from. What is written into a mailbox
    while no root is there is the user's, or a hostile process's of the same user, which no key keeps out.
    """
    try:
        believed = await trio.to_thread.run_sync(note_waiting, mail_directory(session))
    except MailboxFailed as exc:
        raise ConfigInvalid("session", str(exc)) from exc
    return PostOffice.of(session, clock, SessionKeys.new(), believed=believed, tell=tell)


async def _open_gate(
    session: Session, clock: Clock, budget: Decimal | None, tell: Callable[[Event], None], stack: AsyncExitStack
) -> SessionGate:
    """The gate of *session*, which counts what earlier roots have spent, and writes down each call in its books."""
    earlier = await trio.to_thread.run_sync(settle_earlier, session.directory)
    ledger = stack.enter_context(Ledger.open(session.directory / LEDGER))
    under_way = stack.enter_context(CallsUnderWay.open(session.directory / UNDER_WAY))
    books = Books(ledger, clock, tell, under_way)
    return SessionGate(clock, Limits(dollars=budget), earlier=earlier, started=books.begin, settled=books.book)


async def _open_bridges(office: PostOffice, tell: Callable[[Event], None], stack: AsyncExitStack) -> None:
    """Take mail of other sessions, and hand over what waits for them."""
    try:
        bridge = open_bridge(
            office.session.id, office.directory, office.take_in, clock=office.clock, bury=office.dead.bury
        )
        await stack.enter_async_context(bridge)
    except BridgeUnusable as exc:
        raise ConfigInvalid("session", f"{office.session.id} has a root already, or none can be: {exc}") from exc
    forwarding = open_forwarding(office.bridge, lambda exc: tell(LayerFailed(layer="mail", reason=str(exc))))
    await stack.enter_async_context(forwarding)
