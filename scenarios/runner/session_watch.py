"""Sessions of a running scenario: their commands and events, and the names of their agents."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import attrs
import msgspec
import trio

from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.scenarios.runner.event_pattern import agent_members
from coterie.scenarios.runner.user_commands import run_command
from coterie.session_directory import SessionDirectory


@attrs.define(eq=False)
class SessionWatch:
    """Runs the commands of one session and reads its events."""

    _register: Callable[[bytes], SessionDirectory]
    """Registers the session that is named in the first output line."""
    _follower: EventFollower | None = attrs.field(default=None, init=False)
    _session: SessionDirectory | None = attrs.field(default=None, init=False)
    _began: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(
        self,
        command: list[str],
        environment: ScenarioEnvironment,
        stack: AsyncExitStack,
        on_event: Callable[[SessionEvent], None],
    ) -> int:
        """Run *command* to its end, pass each event to *on_event* and return the exit code.

        The events are followed until *stack* closes. Cancellation kills the command.
        """
        async with trio.open_nursery() as watching:
            watching.start_soon(self._follow, stack, on_event)
            status = await run_command(command, environment, self._read_line)
            watching.cancel_scope.cancel()
        return status

    def drain(self) -> Iterator[SessionEvent]:
        """Yield the events that were recorded since."""
        while self._follower is not None and (observed := self._follower.take_nowait()) is not None:
            yield observed

    def _read_line(self, line: bytes) -> None:
        if self._session is None:
            self._session = self._register(line)
            self._began.set()

    async def _follow(self, stack: AsyncExitStack, on_event: Callable[[SessionEvent], None]) -> None:
        if self._follower is None:
            await self._began.wait()
            assert self._session is not None
            self._follower = await stack.enter_async_context(open_follower(self._session.directory))
        async for observed in self._follower:
            on_event(observed)


def qualify_agent(name: str, agent: str) -> str:
    """Return the name by which a scenario refers to *agent* of the session *name*; the first session has no name."""
    return f"{name}/{agent}" if name else agent


def qualify_event(name: str, observed: SessionEvent) -> SessionEvent:
    """Return *observed* with agents renamed as in `qualify_agent`."""
    if not name:
        return observed
    renamed = {
        key: qualify_agent(name, observed.members[key])
        for key in agent_members(observed.kind)
        if observed.members.get(key) is not None
    }
    event = observed.event
    if isinstance(event, AgentChanged):
        event = msgspec.structs.replace(event, name=renamed["name"], parent=renamed.get("parent"))
    return attrs.evolve(observed, agent=renamed["agent"], event=event, members={**observed.members, **renamed})


def qualify_hop(name: str, hop: MessageHop) -> MessageHop:
    """Return *hop* with its mailbox renamed as in `qualify_agent`."""
    return attrs.evolve(hop, mailbox=qualify_agent(name, hop.mailbox))
