"""The root of a session: it supervises, keeps the gate and the books, and bridges to other sessions; nothing else."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

import attrs
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Event, EventLog, LayerFailed
from coterie.clock import Clock
from coterie.mailbox.bridge import BridgeUnusable, open_bridge, open_forwarding
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.gate import Limits, SessionGate, Settled
from coterie.orchestrator.ledger import LEDGER, Ledger, LedgerLine
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.root_record import open_root_record
from coterie.orchestrator.session import Session
from coterie.orchestrator.starting import open_warm_starter, run_reaper
from coterie.orchestrator.tree.charge import Outcome
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.remains import SESSION_VARIABLE
from coterie.orchestrator.tree.supervisor import ROOT, Supervisor


@attrs.frozen(kw_only=True)
class Root:
    """A session whose agents can be started. Made by `open_root`."""

    session: Session
    supervisor: Supervisor
    gate: SessionGate

    async def run(self, order: Order) -> Outcome:
        """Run one agent, and all that it starts, to the end, as `Supervisor.run_agent` does."""
        return await self.supervisor.run_agent(order)


@asynccontextmanager
async def open_root(
    session: Session, *, budget: Decimal | None = None, server: str | None = None, grace: float = 5.0
) -> AsyncIterator[Root]:
    """Be the root of *session* until the block ends; then none of its agents is left.

    *budget* is for all of them together, in dollars. *server* is the URL of the embedded server, where that plays the
    model. Enter it on the main thread of a process that starts no others meanwhile. Raises `ConfigInvalid` if another
    process is the root, `StartFailed`, and `OSError`.
    """
    clock = Clock.from_environment()
    async with AsyncExitStack() as stack:
        stack.enter_context(open_root_record(session, clock))
        office = stack.enter_context(PostOffice.of(session, clock))
        log = stack.enter_context(EventLog.open(session.directory / EVENT_LOG, ROOT, clock))
        ledger = stack.enter_context(Ledger.open(session.directory / LEDGER))
        await _open_bridges(office, log.tell, stack)
        environment = {**os.environ, SESSION_VARIABLE: session.id}
        starter = await stack.enter_async_context(open_warm_starter(environment=environment))
        gate = SessionGate(clock, Limits(dollars=budget), settled=_Books(ledger, clock, log.tell).book)
        supervisor = Supervisor(
            office=office, starter=starter, gate=gate, tell=log.tell, clock=clock, server=server, grace=grace
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_reaper)
            yield Root(session=session, supervisor=supervisor, gate=gate)
            nursery.cancel_scope.cancel()


async def _open_bridges(office: PostOffice, tell: Callable[[Event], None], stack: AsyncExitStack) -> None:
    """Take mail of other sessions, and hand over what waits for them."""
    try:
        bridge = open_bridge(
            office.session.id, office.directory, office.files.send, clock=office.clock, bury=office.dead.bury
        )
        await stack.enter_async_context(bridge)
    except BridgeUnusable as exc:
        raise ConfigInvalid("session", f"{office.session.id} has a root already, or none can be: {exc}") from exc
    forwarding = open_forwarding(office.bridge, lambda exc: tell(LayerFailed(layer="mail", reason=str(exc))))
    await stack.enter_async_context(forwarding)


@attrs.frozen
class _Books:
    """Writes down what each call of the session has come to."""

    _ledger: Ledger
    _clock: Clock
    _tell: Callable[[Event], None]

    def book(self, settled: Settled) -> None:
        """Append a line, unless the call was free. A line that cannot be written is an event: the work goes on."""
        if settled.end == "free":
            return
        asking = settled.asking
        line = LedgerLine.of(
            settled.intent,
            settled.usage,
            at=self._clock.now(),
            agent=asking.agent,
            incarnation=asking.incarnation,
            parent=asking.parent,
            is_estimated=settled.is_estimated,
        )
        try:
            self._ledger.append(line)
        except OSError as exc:
            self._tell(LayerFailed(layer="ledger", reason=str(exc)))
