"""A root inside a test: real agent processes, forked from a real zygote, on the embedded server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.agents.events import AgentChanged, Event
from coterie.agents.models import known_models
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.lifecycle import TaskNotification
from coterie.orchestrator.gate import Limits, SessionGate
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.starting import WarmStarter, open_warm_starter, run_reaper
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.supervisor import Supervisor
from tests.servers import Served, open_served

MODEL = known_models().get("sonnet")


@attrs.define(eq=False)
class Tree:
    """The root of a session, with a lead on the roster whose mailbox the test reads."""

    session: Session
    served: Served
    starter: WarmStarter
    supervisor: Supervisor
    events: list[Event]

    def order(self, name: str, task: str = "go", *, mode: str = "bypassPermissions") -> Order:
        """An agent without instruction files, who may do anything."""
        settings = Settings.build({"permissions.mode": mode}, {})
        return Order(name=name, task=task, model=MODEL.id, settings=settings, parent=MAIN, is_bare=True)

    @property
    def zygote(self) -> int | None:
        """The process that agents are forked from."""
        return self.starter.zygote

    def pid(self, name: str) -> int:
        """The process of *name*."""
        return next(e.pid for e in reversed(self.events) if isinstance(e, AgentChanged) and e.name == name and e.pid)

    async def reached(self, name: str, state: str) -> None:
        """Wait until *name* was in *state*."""
        while state not in self.states(name):  # noqa: ASYNC110 - the events are a plain list
            await trio.sleep(0.005)

    def states(self, name: str) -> list[str]:
        """What *name* went through."""
        return [e.state for e in self.events if isinstance(e, AgentChanged) and e.name == name]

    async def mail(self, name: str = MAIN) -> list[Envelope]:
        """What waits for *name*, taken and acknowledged."""
        office = self.supervisor.office
        async with office.files.open_inbox(name, office.roster.members()[name].incarnation) as inbox:
            envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
            await inbox.acknowledge([envelope.id for envelope in envelopes])
        return envelopes

    async def reports(self) -> dict[str, TaskNotification]:
        """What the lead was told, by who said it; each said it once."""
        mail = await self.mail()
        assert len({envelope.sender.name for envelope in mail}) == len(mail)
        return {envelope.sender.name: TaskNotification.from_body(envelope.body) for envelope in mail}


@asynccontextmanager
async def open_tree(
    project: Path, script: str, *, grace: float = 2.0, limits: Limits | None = None
) -> AsyncIterator[Tree]:
    """A root of a new session of *project*, whose agents are played by *script*, until the block ends."""
    clock = Clock.from_environment()
    session = Session.create(project, clock, task="a test", model=MODEL.id)
    events: list[Event] = []
    with PostOffice.of(session, clock) as office:
        async with (
            open_served(script) as served,
            open_warm_starter() as starter,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(run_reaper)
            gate = SessionGate(clock, limits or Limits())
            supervisor = Supervisor(
                office=office,
                starter=starter,
                gate=gate,
                tell=events.append,
                clock=clock,
                server=served.url,
                grace=grace,
            )
            await office.roster.join(MAIN)
            async with gate.open_asker(MAIN):
                yield Tree(session, served, starter, supervisor, events)
            nursery.cancel_scope.cancel()
