"""The agent's end of its control socket: what the root says is heard for as long as the agent works."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from coterie.agents.control.approval_words import PlanDecided, PlanJudged
from coterie.agents.control.approver import RemoteApprover
from coterie.agents.control.asker import RemoteAsker
from coterie.agents.control.asking_words import Answered
from coterie.agents.control.authority import RemoteAuthority
from coterie.agents.control.compaction_words import Compact, NotCompacted
from coterie.agents.control.gate import RemoteGate
from coterie.agents.control.gate_words import Admitted, Refused
from coterie.agents.control.line import Line, open_line
from coterie.agents.control.spawner import RemoteSpawner
from coterie.agents.control.word import Word
from coterie.agents.control.words import (
    Activity,
    AskedToEnd,
    AtRest,
    Begun,
    Deliver,
    Doing,
    Expect,
    NotBegun,
    Over,
    Relayed,
    Release,
    RootWord,
    RunHere,
    Signal,
    TaskStopped,
    Unable,
    root_words,
)
from coterie.agents.errors import ControlLost
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.ids import MessageId

Take = Callable[[Envelope], Awaitable[object]]
"""Stores a message that is believed, so that the agent finds it in its mailbox."""
GuestWord = RunHere | Relayed | Signal
"""What is about agents that are tasks of the same process."""


@attrs.define(eq=False)
class Station:
    """What an agent has of its root."""

    gate: RemoteGate
    spawner: RemoteSpawner
    asker: RemoteAsker
    approver: RemoteApprover
    authority: RemoteAuthority
    _line: Line[RootWord]
    release: Callable[[str, str], None] = lambda _name, _why: None
    """Lets the agent go on without waiting for the one named, and says why."""
    expect: Callable[[MessageId], None] = lambda _report: None
    """Lets the agent wait for the report of one that was started for it before it ends."""
    compact: Callable[[Compact], None] | None = None
    """Has the agent's conversation compacted; None as long as there is none."""
    hosting: Callable[[GuestWord], None] | None = None
    """Told what is about agents that run here as tasks; None where there can be none, or no more."""
    _take: Take | None = None
    _is_taking: trio.Event = attrs.field(factory=trio.Event, init=False)

    @classmethod
    def on(cls, line: Line[RootWord]) -> "Station":
        """What there is at the near end of *line*."""
        say = line.say
        spawner = RemoteSpawner.over(say)
        remote = (RemoteAsker.over(say), RemoteApprover.over(say), RemoteAuthority.over(say, spawner))
        return cls(RemoteGate(say), spawner, *remote, line)

    @contextmanager
    def delivering_to(self, take: Take) -> Iterator[None]:
        """Let *take* store believed mail within the block, also what has come before; what comes later is too late."""
        self._take = take
        self._is_taking.set()
        try:
            yield
        finally:
            self._is_taking = trio.Event()

    async def deliver(self, envelope: Envelope) -> None:
        """Store a message that is believed, once there is where to."""
        await self._is_taking.wait()
        assert self._take is not None
        await self._take(envelope)

    def say(self, word: Word) -> None:
        """As `Line.say`."""
        self._line.say(word)

    def tell(self, activity: Activity, what: str = "") -> None:
        """Say what the agent does from now on. Raises `ControlLost`."""
        self.say(Doing(activity=activity, what=what))

    def give_up(self, reason: str, *, is_for_user: bool) -> None:
        """Say why the agent ends without having done its work. Raises `ControlLost`."""
        self.say(Unable(reason=reason, is_for_user=is_for_user))

    def heed_compact(self, word: Compact) -> None:
        """Pass on that the conversation is to be compacted, or say that it cannot be yet."""
        if self.compact is not None:
            self.compact(word)
        else:
            self.say(NotCompacted(call=word.call, reason="it has only begun"))

    def heed_answer(self, word: Answered | PlanJudged | PlanDecided) -> None:
        """Let whoever asked somebody, or decided over somebody, go on."""
        match word:
            case Answered():
                self.asker.hear(word)
            case PlanJudged():
                self.approver.hear(word)
            case PlanDecided():
                self.authority.hear(word)

    def heed_guest(self, word: GuestWord) -> None:
        """Pass on what is about an agent that is a task here; one that there is no place for has ended."""
        if self.hosting is not None:
            self.hosting(word)
        elif isinstance(word, RunHere):
            self.say(Over(line=word.line, status=-signal.SIGKILL))


@asynccontextmanager
async def open_station(stream: trio.SocketStream) -> AsyncIterator[Station]:
    """Talk to the root over *stream* until the block ends, as `open_station_on` does."""
    lost: ControlLost | None = None
    async with open_line(stream, root_words) as line:
        try:
            async with open_station_on(line) as station:
                yield station
        except ControlLost as exc:
            lost = exc
    if lost is not None:  # raised out here, where it is not put into a group
        raise lost


@asynccontextmanager
async def open_station_on(line: Line[RootWord]) -> AsyncIterator[Station]:
    """Talk to the root on *line* until the block ends; believed mail waits until `delivering_to` says where to.

    When the root has gone, or cannot be understood, the block is cancelled and `ControlLost` raised: an agent that
    nobody supervises must end.
    """
    lost: ControlLost | None = None
    station = Station.on(line)
    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            nonlocal lost
            try:
                await _listen(line, station)
            except ControlLost as exc:
                lost = exc
                nursery.cancel_scope.cancel()

        nursery.start_soon(listen, name="control")
        yield station
        nursery.cancel_scope.cancel()
    if lost is not None:
        raise lost


async def _listen(line: Line[RootWord], station: Station) -> None:
    while (word := await line.hear()) is not None:
        match word:
            case Admitted() | Refused():
                station.gate.hear(word)
            case Begun() | NotBegun() | TaskStopped() | AskedToEnd() | AtRest():
                station.spawner.hear(word)
            case Answered() | PlanJudged() | PlanDecided():
                station.heed_answer(word)
            case Release():
                station.release(word.name, word.why)
            case Expect():
                station.expect(word.report)
            case Compact():
                station.heed_compact(word)
            case RunHere() | Relayed() | Signal():
                station.heed_guest(word)
            case Deliver():
                await station.deliver(word.envelope())
    raise ControlLost("the root has gone")
