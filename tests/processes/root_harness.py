"""Root inside a test, with real agent processes forked from a zygote, and the embedded server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import psutil
import trio

from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.router import OutgoingMessage
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.processes.process_starters import ZygoteStarter
from coterie.orchestrator.root.root import SessionRoot, open_root
from coterie.orchestrator.supervisor.agent_run import AgentRun
from coterie.orchestrator.supervisor.supervisor import Supervisor
from coterie.session_directory import MAIN, SessionDirectory
from tests.embedded_server import Served, open_served

MODEL = known_models().get("sonnet")
PATIENCE = 60.0
"""Seconds that a block with a root may take."""


@attrs.define(eq=False)
class RootHarness:
    """Root of a session; the test reads the mailbox of the lead."""

    served: Served
    root: SessionRoot

    @property
    def session(self) -> SessionDirectory:
        return self.root.session

    @property
    def supervisor(self) -> Supervisor:
        return self.root.supervisor

    @property
    def events(self) -> list[AgentChanged]:
        """Return the agent states that the root logged."""
        told = (observed.event for observed in read_session(self.session.directory))
        return [event for event in told if isinstance(event, AgentChanged)]

    def agent_spec(self, name: str, task: str = "go", *, mode: str = "bypassPermissions") -> AgentSpec:
        """Return the spec of an agent without instruction files and with all permissions."""
        settings = Settings.build({"permissions.mode": mode}, {})
        return AgentSpec(name=name, task=task, model=MODEL.id, settings=settings, parent=MAIN, is_bare=True)

    def agent_run(
        self, name: str, task: str = "go", *, mode: str = "bypassPermissions", is_kept: bool = False, **changes: Any
    ) -> AgentRun:
        """Return the run of such an agent, with *changes* of its spec."""
        return AgentRun(spec=attrs.evolve(self.agent_spec(name, task, mode=mode), **changes), is_kept=is_kept)

    @property
    def zygote(self) -> int | None:
        starter = self.supervisor.services.starter
        assert isinstance(starter, ZygoteStarter)
        return starter.zygote

    def pid(self, name: str) -> int:
        return next(e.pid for e in reversed(self.events) if e.name == name and e.pid)

    async def until_state(self, name: str, state: str, count: int = 1) -> None:
        """Wait until *name* was in *state*, *count* times."""
        while self.states(name).count(state) < count:  # noqa: ASYNC110 - the simplest reader there is
            await trio.sleep(0.005)

    async def until_shell_runs(self, name: str) -> None:
        """Wait until a shell of *name* is running."""
        await self.until_state(name, "running")
        while not psutil.Process(self.pid(name)).children():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)

    def states(self, name: str) -> list[str]:
        """Return the states of *name* so far."""
        return [e.state for e in self.events if e.name == name]

    async def write(self, name: str, text: str) -> None:
        """Send *name* a message of the lead."""
        office = self.supervisor.services.mail
        lead = Sender(name=MAIN, incarnation=1, session=self.session.id, kind="lead")
        await office.router().send(lead, OutgoingMessage(to=name, body=text))

    async def mail(self, name: str = MAIN) -> list[Envelope]:
        """Take and acknowledge the pending messages of *name*."""
        office = self.supervisor.services.mail
        async with office.files.open_inbox(name, office.roster.members()[name].incarnation) as inbox:
            envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
            await inbox.acknowledge([envelope.id for envelope in envelopes])
        return envelopes

    async def reports(self) -> dict[str, TaskNotification]:
        """Return the reports to the lead by sender; each sender reports once."""
        mail = await self.mail()
        assert len({envelope.sender.name for envelope in mail}) == len(mail)
        return {envelope.sender.name: TaskNotification.from_body(envelope.body) for envelope in mail}


@asynccontextmanager
async def open_root_harness(
    project: Path, script: str, *, grace: float = 2.0, budget: Decimal | None = None
) -> AsyncIterator[RootHarness]:
    """Open the root of a new session of *project* whose model follows *script*, until the block ends or is too slow."""
    session = SessionDirectory.create(project, Clock.from_environment(), task="a test", model=MODEL.id)
    with trio.fail_after(PATIENCE):
        async with (
            open_served(script) as served,
            open_root(session, budget=budget, server=served.url, grace=grace) as root,
        ):
            await root.supervisor.services.mail.roster.join(MAIN)
            async with root.gateway.open_client(MAIN):
                yield RootHarness(served, root)
