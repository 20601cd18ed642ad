"""Record of unfinished agents on disk, from which the next root of the session resumes them.

A record says what was asked for and by whom, never what is allowed: that follows anew from whoever asked. It is signed,
as it may also say that somebody has to plan first.
"""

from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.spawn_request import SpawnRequest
from coterie.files import replace_file
from coterie.mailbox.envelope import MessageId
from coterie.orchestrator.approvals.store import ApprovalKey
from coterie.session_directory import MAIN, SessionDirectory

UNFINISHED_FILE = "order.json"
"""In the directory of an agent."""
VERSION = 1


class _File(msgspec.Struct, frozen=True):
    v: int
    order: msgspec.Raw
    mac: str


@attrs.frozen(kw_only=True)
class UnfinishedAgent:
    """An agent that somebody counts on."""

    name: str
    parent: str
    """Who asked for it."""
    request: SpawnRequest
    report: MessageId
    """Under which its report is expected."""
    is_done: bool = False
    """Whether the task is done, and the agent is only there to be written to."""

    def to_bytes(self, key: ApprovalKey) -> bytes:
        """One JSON object on a line, signed with *key*."""
        content = msgspec.json.encode(self)
        return msgspec.json.encode(_File(v=VERSION, order=msgspec.Raw(content), mac=key.sign(content))) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, key: ApprovalKey) -> "UnfinishedAgent":
        """What `to_bytes` wrote. Raises `ValueError` with the reason, whatever *data* is."""
        try:
            file = msgspec.json.decode(data, type=_File)
            order = msgspec.json.decode(file.order, type=cls)
        except RecursionError as exc:
            raise ValueError("it is nested too deeply") from exc
        if file.v != VERSION:
            raise ValueError(f"version {file.v}; this program reads {VERSION}")
        if not key.verifies(bytes(file.order), file.mac):
            raise ValueError("another process than the root has written it")
        return order


@attrs.define(eq=False)
class UnfinishedAgents:
    """The orders of one session. What cannot be written is an event, and the work goes on."""

    _session: SessionDirectory
    _key: ApprovalKey
    _tell: Callable[[Event], None]
    _waiting: dict[str, UnfinishedAgent] = attrs.field(factory=dict, init=False)
    """Those of an earlier root that nobody has taken up yet, by name."""

    async def load(self) -> None:
        """Find what an earlier root has left open. One that cannot be read is an event, and stays where it is."""
        found = await trio.to_thread.run_sync(self._read_all)
        self._waiting = {order.name: order for order in found}
        for order in [order for order in found if not self._has_parent(order)]:
            await self.discard(order.name)

    @property
    def names(self) -> frozenset[str]:
        """Whose orders wait to be taken up."""
        return frozenset(self._waiting)

    def of(self, parent: str) -> list[UnfinishedAgent]:
        """Those that wait, and that *parent* has asked for."""
        return [order for order in self._waiting.values() if order.parent == parent]

    def mark_resumed(self, name: str) -> None:
        """Somebody runs *name*, or keeps it, again."""
        self._waiting.pop(name, None)

    async def begin(self, agent: UnfinishedAgent) -> None:
        """Record that *agent* is about to run, and will report."""
        self.mark_resumed(agent.name)
        await self._save(agent)

    async def end(self, agent: UnfinishedAgent, *, is_kept: bool) -> None:
        """Record that *agent* has reported, and if it *is_kept* for further messages."""
        if is_kept:
            await self._save(attrs.evolve(agent, is_done=True))
        else:
            await self.discard(agent.name)

    async def _save(self, order: UnfinishedAgent) -> None:
        """Write *order* down, in the place of an older one for the same agent."""
        path = self._path(order.name)
        try:
            await trio.to_thread.run_sync(_write, path, order.to_bytes(self._key))
        except OSError as exc:
            self._fail(order.name, f"would not survive a crash: {exc.strerror}")

    async def discard(self, name: str) -> None:
        """Nobody counts on *name* any more, nor on those that it asked for."""
        for order in self.of(name):
            await self.discard(order.name)
        self._waiting.pop(name, None)
        try:
            await trio.to_thread.run_sync(lambda: self._path(name).unlink(missing_ok=True))
        except OSError as exc:
            self._fail(name, f"would be taken up again, though it has ended: {exc.strerror}")

    def _has_parent(self, order: UnfinishedAgent) -> bool:
        above = self._waiting.get(order.parent)
        return order.parent == MAIN or (above is not None and not above.is_done)

    def _read_all(self) -> list[UnfinishedAgent]:
        found = []
        for path in sorted(self._path("*").parent.parent.glob(f"*/{UNFINISHED_FILE}")):
            try:
                order = UnfinishedAgent.from_bytes(path.read_bytes(), self._key)
            except (OSError, ValueError) as exc:
                self._fail(path.parent.name, f"cannot be taken up again: {path}: {exc}")
                continue
            if order.name == path.parent.name:
                found.append(order)
        return found

    def _path(self, name: str) -> Path:
        return self._session.directory / "agents" / name / UNFINISHED_FILE

    def _fail(self, name: str, words: str) -> None:
        self._tell(LayerFailed(layer="supervisor", reason=f"{name} {words}"))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A kill does not lose it, and a power cut may: otherwise every start would have to wait for the disk.
    replace_file(path, content, durable=False, mode=0o600)
