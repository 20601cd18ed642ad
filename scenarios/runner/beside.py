"""Another session of the story's user, beside the first or after it; its agents are told apart by its name."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import attrs
import msgspec
import trio

from coterie.agents.events import AgentChanged
from coterie.orchestrator.cli.mail.traffic import Passage
from coterie.orchestrator.events.following import Follower, open_follower
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.ledger import LedgerLine
from coterie.orchestrator.session import Session
from coterie.scenarios.runner.commands import run_to_end
from coterie.scenarios.runner.pattern import members_of_agents
from coterie.scenarios.runner.stage import Stage


@attrs.define(eq=False)
class Beside:
    """A session that runs while another does, in a task of its own."""

    _join: Callable[[bytes], Session]
    """Makes a session of the first line that it prints."""
    _see: Callable[[Observed], None]
    _follower: Follower | None = attrs.field(default=None, init=False)
    _session: Session | None = attrs.field(default=None, init=False)
    _began: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self, command: list[str], stage: Stage) -> int:
        """Run *command* on *stage* to its end, and let all its events be seen; its status. Cancellation kills it."""
        async with AsyncExitStack() as stack:
            async with trio.open_nursery() as watching:
                watching.start_soon(self._watch, stack)
                status = await run_to_end(command, stage, self._hear)
                watching.cancel_scope.cancel()
            while self._follower is not None and (observed := self._follower.take_nowait()) is not None:
                self._see(observed)
        return status

    def _hear(self, line: bytes) -> None:
        if self._session is None:
            self._session = self._join(line)
            self._began.set()

    async def _watch(self, stack: AsyncExitStack) -> None:
        await self._began.wait()
        assert self._session is not None
        self._follower = await stack.enter_async_context(open_follower(self._session.directory))
        async for observed in self._follower:
            self._see(observed)


def of_session(name: str, agent: str) -> str:
    """What a story calls *agent* of the session *name*; the first session has none."""
    return f"{name}/{agent}" if name else agent


def event_of(name: str, observed: Observed) -> Observed:
    """*observed*, with its agents called as in the story."""
    if not name:
        return observed
    renamed = {
        key: of_session(name, observed.members[key])
        for key in members_of_agents(observed.kind)
        if observed.members.get(key) is not None
    }
    event = observed.event
    if isinstance(event, AgentChanged):
        event = msgspec.structs.replace(event, name=renamed["name"], parent=renamed.get("parent"))
    return attrs.evolve(observed, agent=renamed["agent"], event=event, members={**observed.members, **renamed})


def passage_of(name: str, passage: Passage) -> Passage:
    """*passage*, with the mailbox called as in the story."""
    return attrs.evolve(passage, mailbox=of_session(name, passage.mailbox))


def line_of(name: str, line: LedgerLine) -> LedgerLine:
    """*line*, with its agent called as in the story."""
    return attrs.evolve(line, agent=of_session(name, line.agent))
