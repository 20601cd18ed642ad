"""Records on disk of the agents that are unfinished, so that the next root of the session can resume them.

A record contains the spawn request and the name of its requester, but no rights: they are derived again from the
requester. It is signed, so that another process cannot remove the demand for an approved plan from the request.
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
"""Name of the file with the record of an unfinished agent, in the directory of the agent."""
VERSION = 1


class _File(msgspec.Struct, frozen=True):
    v: int
    order: msgspec.Raw
    mac: str


@attrs.frozen(kw_only=True)
class UnfinishedAgent:
    """Record of an agent that still owes a report for its task, or that waits for further messages."""

    name: str
    parent: str
    """Name of the agent that requested this agent."""
    request: SpawnRequest
    report: MessageId
    """Id of the report about its current task."""
    is_done: bool = False
    """True if its task is done and it only waits for further messages."""

    def to_bytes(self, key: ApprovalKey) -> bytes:
        """Encode the record as one line of JSON, signed with *key*."""
        content = msgspec.json.encode(self)
        return msgspec.json.encode(_File(v=VERSION, order=msgspec.Raw(content), mac=key.sign(content))) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, key: ApprovalKey) -> "UnfinishedAgent":
        """Decode the result of `to_bytes`. Raises only `ValueError`, also if *data* is not signed with *key*."""
        try:
            file = msgspec.json.decode(data, type=_File)
            agent = msgspec.json.decode(file.order, type=cls)
        except RecursionError as exc:
            raise ValueError("the JSON of the agent record is nested too deeply; delete the file") from exc
        if file.v != VERSION:
            raise ValueError(f"the file has format version {file.v}, but this program reads {VERSION}; delete it")
        if not key.verifies(bytes(file.order), file.mac):
            raise ValueError("the signature of the file is invalid, because another program changed it; delete it")
        return agent


@attrs.define(eq=False)
class UnfinishedAgents:
    """Records of the unfinished agents of one session. A failed read or write is only reported as an event."""

    _session: SessionDirectory
    _key: ApprovalKey
    _emit: Callable[[Event], None]
    _waiting: dict[str, UnfinishedAgent] = attrs.field(factory=dict, init=False)
    """Agents of an earlier root that are still to be resumed, by name."""

    async def load(self) -> None:
        """Load the records of an earlier root; delete those of agents without a parent that can be resumed.

        An unreadable record is reported as an event, and its file is not deleted.
        """
        found = await trio.to_thread.run_sync(self._read_all)
        self._waiting = {agent.name: agent for agent in found}
        for agent in [agent for agent in found if not self._has_parent(agent)]:
            await self.discard(agent.name)

    @property
    def names(self) -> frozenset[str]:
        """Names of the agents of an earlier root that are still to be resumed."""
        return frozenset(self._waiting)

    def of(self, parent: str) -> list[UnfinishedAgent]:
        """Return the agents that are still to be resumed and that *parent* requested."""
        return [agent for agent in self._waiting.values() if agent.parent == parent]

    def mark_resumed(self, name: str) -> None:
        """Remove agent *name* from those that are still to be resumed. Its record stays on disk."""
        self._waiting.pop(name, None)

    async def begin(self, agent: UnfinishedAgent) -> None:
        """Write the record of *agent*, whose task begins now."""
        self.mark_resumed(agent.name)
        await self._save(agent)

    async def end(self, agent: UnfinishedAgent, *, is_kept: bool) -> None:
        """Record that *agent* has reported. Its record is deleted, unless it *is_kept* for further messages."""
        if is_kept:
            await self._save(attrs.evolve(agent, is_done=True))
        else:
            await self.discard(agent.name)

    async def _save(self, agent: UnfinishedAgent) -> None:
        """Write the record of *agent*, and replace the earlier record."""
        try:
            await trio.to_thread.run_sync(_write, self._path(agent.name), agent.to_bytes(self._key))
        except OSError as exc:
            self._emit_failure(agent.name, f"cannot be resumed after a crash; no record was saved: {exc.strerror}")

    async def discard(self, name: str) -> None:
        """Delete the record of agent *name*, and those of its descendants that are still to be resumed."""
        for child in self.of(name):
            await self.discard(child.name)
        self._waiting.pop(name, None)
        try:
            await trio.to_thread.run_sync(lambda: self._path(name).unlink(missing_ok=True))
        except OSError as exc:
            self._emit_failure(name, f"has ended, but will be resumed; its record was not deleted: {exc.strerror}")

    def _has_parent(self, agent: UnfinishedAgent) -> bool:
        parent = self._waiting.get(agent.parent)
        return agent.parent == MAIN or (parent is not None and not parent.is_done)

    def _read_all(self) -> list[UnfinishedAgent]:
        found = []
        for path in sorted(self._path("*").parent.parent.glob(f"*/{UNFINISHED_FILE}")):
            try:
                agent = UnfinishedAgent.from_bytes(path.read_bytes(), self._key)
            except (OSError, ValueError) as exc:
                self._emit_failure(path.parent.name, f"cannot be resumed: {path}: {exc}")
                continue
            if agent.name == path.parent.name:
                found.append(agent)
        return found

    def _path(self, name: str) -> Path:
        return self._session.directory / "agents" / name / UNFINISHED_FILE

    def _emit_failure(self, name: str, problem: str) -> None:
        self._emit(LayerFailed(layer="supervisor", reason=f"agent {name} {problem}"))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Not fsynced, so that a start need not wait for the disk: a kill does not lose the record, a power cut may.
    replace_file(path, content, durable=False, mode=0o600)
