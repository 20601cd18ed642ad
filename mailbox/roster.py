"""Rosters: the members of a session by name. Each start of a member is an incarnation with a higher number."""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path

import attrs
import msgspec
import trio
from filelock import FileLock, Timeout

from coterie.files import replace_file
from coterie.mailbox.address import USER, check_name
from coterie.mailbox.contract import Member, MemberOrigin, MemberState, Roster
from coterie.mailbox.errors import NameInvalid, PathError, UnknownRecipient
from coterie.suggestions import closest_match

VERSION = 1
LOCK_TIMEOUT = 10.0


class RosterFailed(PathError):
    """The roster file cannot be read, changed or locked."""


def find_member(roster: Roster, name: str) -> Member:
    """Return the member of *roster* with exactly this *name*.

    Raises `NameInvalid`, and `UnknownRecipient` with similar names if there is no such member.
    """
    members = roster.members()
    if (member := members.get(name)) is not None:
        return member
    check_name(name)
    raise UnknownRecipient(name, tuple(closest_match(name, members)), tuple(sorted(members)))


@attrs.frozen(kw_only=True)
class RosterState:
    """Content of a roster at one moment: the members, and the number of starts of each name so far."""

    members: Mapping[str, Member] = attrs.field(factory=dict)
    starts: Mapping[str, int] = attrs.field(factory=dict)
    """Number of incarnations of each case-folded name, including names that left the roster."""
    v: int = VERSION

    def join(self, name: str, engagement: MemberOrigin | None = None) -> "RosterState":
        """Return the roster after another start of *name*: a running member with the next incarnation number.

        *engagement* is agent type, parent and task of the member; None keeps those on the roster. Raises `NameInvalid`,
        also for the name of the user, and if the name of another member differs only in case.
        """
        folded = check_name(name).casefold()
        if folded == USER:
            raise NameInvalid(name, "this name is reserved for the human user; choose another name")
        holder = next((other for other in self.members if other.casefold() == folded), name)
        if holder != name:
            raise NameInvalid(name, f"the name differs from {holder!r} only in case; choose another name")
        start = self.starts.get(folded, 0) + 1
        if engagement is None:
            engagement = self.members[name].engagement if name in self.members else MemberOrigin()
        member = Member(name=name, incarnation=start, engagement=engagement)
        starts = {**self.starts, folded: member.incarnation}
        return attrs.evolve(self, members={**self.members, name: member}, starts=starts)

    def set_state(self, name: str, state: MemberState) -> "RosterState":
        """Return the roster with member *name* in *state*. Raises `NameInvalid` and `UnknownRecipient`."""
        member = attrs.evolve(find_member(LocalRoster(self), name), state=state)
        return attrs.evolve(self, members={**self.members, name: member})

    def leave(self, name: str) -> "RosterState":
        """Return the roster without member *name*. Raises `NameInvalid` and `UnknownRecipient`.

        The number of starts of *name* is kept, so that no incarnation number is used twice.
        """
        gone = find_member(LocalRoster(self), name)
        return attrs.evolve(self, members={other: m for other, m in self.members.items() if m is not gone})

    def to_bytes(self) -> bytes:
        """Encode the roster as one JSON object and a newline."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "RosterState":
        """Decode a roster that `to_bytes` wrote. Raises `ValueError` with the reason for any other *data*."""
        try:
            version = _version.decode(data).v
            state = _decoder.decode(data)
        except RecursionError as exc:
            raise ValueError("the JSON of the roster is nested too deeply") from exc
        if version != VERSION:
            raise ValueError(f"the roster has format version {version}, not {VERSION}; use another version of Coterie")
        for name, member in state.members.items():
            if name != member.name or not 1 <= member.incarnation <= state.starts.get(name.casefold(), 0):
                raise ValueError(f"the roster entry of {name!r} has another name, or a wrong number of starts")
        return state


class _Version(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Version)
_decoder = msgspec.json.Decoder(RosterState)


@attrs.define(eq=False)
class LocalRoster:
    """Roster of agents that are tasks of one process, kept in memory."""

    _state: RosterState = attrs.field(factory=RosterState)

    def members(self) -> Mapping[str, Member]:
        """Return all members by name, as a snapshot that later changes do not affect."""
        return self._state.members

    def join(self, name: str, engagement: MemberOrigin | None = None) -> Member:
        """Add *name* with its next incarnation number, as `RosterState.join`, and return the member.

        Raises `NameInvalid`, also if the name of another member differs only in case.
        """
        self._state = self._state.join(name, engagement)
        return self._state.members[name]

    def set_state(self, name: str, state: MemberState) -> None:
        """Set the state of member *name*. Raises `NameInvalid` and `UnknownRecipient`."""
        self._state = self._state.set_state(name, state)

    def leave(self, name: str) -> None:
        """Remove member *name*. Raises `NameInvalid` and `UnknownRecipient`."""
        self._state = self._state.leave(name)


@attrs.define(eq=False)
class FileRoster:
    """Roster of agents that are processes: a JSON file, replaced atomically under a lock.

    A change applies to the current file content, so no change of another process is lost. A change survives a power cut
    once its call returns. Cancellation leaves the change done or not begun. Every method raises `RosterFailed` if the
    file is damaged, has vanished, or cannot be read, changed or locked.
    """

    path: Path
    _snapshot: "_RosterSnapshot | None" = attrs.field(default=None, init=False)
    _was_there: bool = attrs.field(default=False, init=False)

    def members(self) -> Mapping[str, Member]:
        """Return all members by name; empty if there is no file yet. Reads the file only if it has changed."""
        if self._snapshot is None or not self._snapshot.is_current():
            self._snapshot = self._read()
        return self._snapshot.state.members if self._snapshot is not None else {}

    async def join(self, name: str, engagement: MemberOrigin | None = None) -> Member:
        """Add *name* with its next incarnation number, as `RosterState.join`, and return the member.

        Raises `NameInvalid`, also if the name of another member differs only in case.
        """
        state = await trio.to_thread.run_sync(self._change_sync, lambda roster: roster.join(name, engagement))
        return state.members[name]

    async def set_state(self, name: str, state: MemberState) -> None:
        """Set the state of member *name*. Raises `NameInvalid` and `UnknownRecipient`."""
        await trio.to_thread.run_sync(self._change_sync, lambda roster: roster.set_state(name, state))

    def mark_ended_sync(self, names: Iterable[str]) -> None:
        """Mark all members in *names* as ended, in one change. Blocks. Raises `NameInvalid` and `UnknownRecipient`."""
        self._change_sync(lambda roster: reduce(lambda changed, name: changed.set_state(name, "ended"), names, roster))

    async def leave(self, name: str) -> None:
        """Remove member *name*. Raises `NameInvalid` and `UnknownRecipient`."""
        await trio.to_thread.run_sync(self._change_sync, lambda roster: roster.leave(name))

    def _change_sync(self, change: Callable[[RosterState], RosterState]) -> RosterState:
        lock = FileLock(f"{self.path}.lock", thread_local=False, timeout=LOCK_TIMEOUT)
        try:
            with lock:
                found = self._read()
                changed = change(RosterState() if found is None else found.state)
                replace_file(self.path, changed.to_bytes(), mode=0o600)
        except Timeout as exc:
            raise RosterFailed(self.path, f"the roster was locked for {LOCK_TIMEOUT:.0f} seconds; try again") from exc
        except OSError as exc:
            raise RosterFailed(self.path, f"the roster cannot be changed: {exc.strerror}; check the disk") from exc
        return changed

    def _read(self) -> "_RosterSnapshot | None":
        try:
            snapshot = _RosterSnapshot.of(self.path)
        except FileNotFoundError as exc:
            # A new roster would count from 1 again, and old mail could reach a new incarnation.
            if self._was_there:
                raise RosterFailed(self.path, "the roster was deleted during the session; start a new session") from exc
            return None
        except OSError as exc:
            raise RosterFailed(self.path, f"the roster cannot be read: {exc.strerror}; check its permissions") from exc
        except ValueError as exc:
            raise RosterFailed(self.path, f"this is no valid roster; restore it or start a new session: {exc}") from exc
        self._was_there = True
        return snapshot


@attrs.define(eq=False)
class _RosterSnapshot:
    """Content of the roster file when it was read.

    The file is kept open, so that no new file can reuse its inode number.
    """

    state: RosterState
    _descriptor: int
    _written: int
    """Modification time of the roster file when it was read, in nanoseconds since 1970."""

    @classmethod
    def of(cls, path: Path) -> "_RosterSnapshot":
        """Read the roster file *path*. Raises `OSError`, and `ValueError` if the content is not valid."""
        with path.open("rb", buffering=0) as file:
            written = os.fstat(file.fileno()).st_mtime_ns
            snapshot = cls(RosterState.from_bytes(file.read()), os.dup(file.fileno()), written)
        weakref.finalize(snapshot, os.close, snapshot._descriptor)
        return snapshot

    def is_current(self) -> bool:
        """True if the roster file was neither replaced nor written since it was read."""
        status = os.fstat(self._descriptor)
        return status.st_nlink > 0 and status.st_mtime_ns == self._written
