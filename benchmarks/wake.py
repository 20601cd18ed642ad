"""Time from a message to the next activity of an idle agent process, through the root of a real session.

The time runs from the call that sends to the state `running`, which the root gets before the agent calls the model.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import attrs
import trio

from benchmarks.figures import Figure, at_most
from benchmarks.scripted_server import open_scripted_server
from coterie.agents.events.agent_events import Event
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.mailbox.envelope import Sender
from coterie.mailbox.router import OutgoingMessage
from coterie.orchestrator.root.root import SessionRoot, open_root
from coterie.session_directory import MAIN, SessionDirectory

WAKES = 30
MODEL = known_models().get("sonnet")
NAME = "mate"


@attrs.define(eq=False)
class _States:
    """States of the agent as the root reports them."""

    reached: dict[str, trio.Event] = attrs.field(factory=dict)

    def note_event(self, event: Event) -> None:
        """Wake the tasks that wait for a state."""
        if isinstance(event, AgentChanged) and event.state in self.reached:
            self.reached.pop(event.state).set()

    def next(self, state: str) -> trio.Event:
        """Return an event that is set when the agent is in *state* again."""
        return self.reached.setdefault(state, trio.Event())


async def measure() -> list[Figure]:
    """Measure the median and the maximum of many wakeups."""
    with _home() as project:
        session = SessionDirectory.create(project, Clock.from_environment(), task="a benchmark", model=MODEL.id)
        async with open_scripted_server() as server, open_root(session, server=server.url) as root:
            seconds = await _measure_wakeups(root)
    milliseconds = [1e3 * each for each in seconds]
    return [
        Figure(name="an idle agent is woken in", value=median(milliseconds), unit="ms", digits=1, goal=at_most(50)),
        Figure(name=f"the longest of {WAKES}", value=max(milliseconds), unit="ms", digits=1),
    ]


async def _measure_wakeups(root: SessionRoot) -> list[float]:
    states, office = _States(), root.supervisor.services.mail
    root.supervisor.services = attrs.evolve(root.supervisor.services, emit=states.note_event)
    await office.roster.join(MAIN)
    seconds: list[float] = []
    async with root.gateway.open_client(MAIN), trio.open_nursery() as nursery:
        idle = states.next("idle")
        nursery.start_soon(root.run, _order())
        await idle.wait()
        for number in range(WAKES):
            idle, running = states.next("idle"), states.next("running")
            began = time.perf_counter()
            await office.router().send(_lead(root.session), OutgoingMessage(to=NAME, body=f"message {number}"))
            await running.wait()
            seconds.append(time.perf_counter() - began)
            await idle.wait()
        nursery.cancel_scope.cancel()
    return seconds


def _order() -> AgentSpec:
    settings = Settings.build({"permissions.mode": "plan"}, {})
    return AgentSpec(
        name=NAME, task="Wait.", model=MODEL.id, settings=settings, parent=MAIN, is_bare=True, is_teammate=True
    )


def _lead(session: SessionDirectory) -> Sender:
    return Sender(name=MAIN, incarnation=1, session=session.id, kind="lead")


@contextmanager
def _home() -> Iterator[Path]:
    """Create a project, a home directory, and a directory for sockets."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="coterie-") as directory:
        os.environ |= {"COTERIE_HOME": str(Path(directory, "home")), "XDG_RUNTIME_DIR": directory}
        try:
            yield Path(directory)
        finally:
            os.environ.clear()
            os.environ.update(before)
