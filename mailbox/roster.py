"""Rosters: the members of a session; names are unique and incarnations only count up."""

import difflib
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
from coterie.mailbox.errors import MailboxError, NameInvalid, UnknownRecipient

VERSION = 1
LOCK_TIMEOUT = 10.0
SIMILARITY = 0.5
NEAREST = 3


@attrs.define(eq=False)
class RosterFailed(MailboxError):
    """The file of a roster cannot be read, changed or locked."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def find_member(roster: Roster, name: str) -> Member:
    """Who has this very *name*. Raises `NameInvalid`, and `UnknownRecipient` with the nearest names."""
    members = roster.members()
    if (member := members.get(name)) is not None:
        return member
    check_name(name)
    by_folded = {known.casefold(): known for known in members}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=NEAREST, cutoff=SIMILARITY)
    raise UnknownRecipient(name, tuple(by_folded[match] for match in matches), tuple(sorted(members)))


@attrs.frozen(kw_only=True)
class RosterState:
    """What a roster says at one moment."""

    members: Mapping[str, Member] = attrs.field(factory=dict)
    starts: Mapping[str, int] = attrs.field(factory=dict)
    """How often each name was started, by its case-folded form; also of names that left."""
    v: int = VERSION

    def join(self, name: str, engagement: MemberOrigin | None = None) -> "RosterState":
        """With the next start of *name*; without an *engagement* it has the one of its last start.

        Raises `NameInvalid`, also if somebody's name differs only in case.
        """
        folded = check_name(name).casefold()
        if folded == USER:
            raise NameInvalid(name, "it is the human's")
        holder = next((other for other in self.members if other.casefold() == folded), name)
        if holder != name:
            raise NameInvalid(name, f"it differs from {holder!r} only in case")
        start = self.starts.get(folded, 0) + 1
        if engagement is None:
            engagement = self.members[name].engagement if name in self.members else MemberOrigin()
        member = Member(name=name, incarnation=start, engagement=engagement)
        starts = {**self.starts, folded: member.incarnation}
        return attrs.evolve(self, members={**self.members, name: member}, starts=starts)

    def set_state(self, name: str, state: MemberState) -> "RosterState":
        """With *name* in *state*. Raises `NameInvalid` and `UnknownRecipient`."""
        member = attrs.evolve(find_member(LocalRoster(self), name), state=state)
        return attrs.evolve(self, members={**self.members, name: member})

    def leave(self, name: str) -> "RosterState":
        """Without *name*; its starts stay counted. Raises `NameInvalid` and `UnknownRecipient`."""
        gone = find_member(LocalRoster(self), name)
        return attrs.evolve(self, members={other: m for other, m in self.members.items() if m is not gone})

    def to_bytes(self) -> bytes:
        """One JSON object on a line."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "RosterState":
        """What `to_bytes` wrote. Raises `ValueError` with the reason, whatever *data* is."""
        try:
            version = _version.decode(data).v
            register = _decoder.decode(data)
        except RecursionError as exc:
            raise ValueError("it is nested too deeply") from exc
        if version != VERSION:
            raise ValueError(f"version {version}; this program reads {VERSION}")
        for name, member in register.members.items():
            if name != member.name or not 1 <= member.incarnation <= register.starts.get(name.casefold(), 0):
                raise ValueError(f"what it says of {name!r} does not fit together")
        return register


class _Version(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Version)
_decoder = msgspec.json.Decoder(RosterState)


@attrs.define(eq=False)
class LocalRoster:
    """The roster of agents that are tasks in one process."""

    _register: RosterState = attrs.field(factory=RosterState)

    def members(self) -> Mapping[str, Member]:
        """Everybody, by name; what it gave does not change later."""
        return self._register.members

    def join(self, name: str, engagement: MemberOrigin | None = None) -> Member:
        """Begin the next start of *name*. Raises `NameInvalid`, also if somebody's name differs only in case."""
        self._register = self._register.join(name, engagement)
        return self._register.members[name]

    def set_state(self, name: str, state: MemberState) -> None:
        """Say what *name* does now. Raises `NameInvalid` and `UnknownRecipient`."""
        self._register = self._register.set_state(name, state)

    def leave(self, name: str) -> None:
        """Strike *name* off. Raises `NameInvalid` and `UnknownRecipient`."""
        self._register = self._register.leave(name)


@attrs.define(eq=False)
class FileRoster:
    """The roster of agents that are processes: a JSON file, replaced whole under a lock.

    A change is made on what the file says at that moment, so none of another process is lost; once it returns it
    survives a power cut. Cancellation leaves it made or not begun. Everything raises `RosterFailed` if the file is
    damaged, has vanished, or cannot be read, changed or locked.
    """

    path: Path
    _snapshot: "_RosterSnapshot | None" = attrs.field(default=None, init=False)
    _was_there: bool = attrs.field(default=False, init=False)

    def members(self) -> Mapping[str, Member]:
        """Everybody, by name; from memory, at the price of one `fstat`, while the file is the same."""
        if self._snapshot is None or not self._snapshot.is_current():
            self._snapshot = self._read()
        return self._snapshot.register.members if self._snapshot is not None else {}

    async def join(self, name: str, engagement: MemberOrigin | None = None) -> Member:
        """Begin the next start of *name*. Raises `NameInvalid`, also if somebody's name differs only in case."""
        register = await trio.to_thread.run_sync(self._change_sync, lambda register: register.join(name, engagement))
        return register.members[name]

    async def set_state(self, name: str, state: MemberState) -> None:
        """Say what *name* does now. Raises `NameInvalid` and `UnknownRecipient`."""
        await trio.to_thread.run_sync(self._change_sync, lambda register: register.set_state(name, state))

    def mark_ended_sync(self, names: Iterable[str]) -> None:
        """Say of all these, in one change, that they have ended. Blocks; raises `UnknownRecipient`."""
        self._change_sync(
            lambda register: reduce(lambda changed, name: changed.set_state(name, "ended"), names, register)
        )

    async def leave(self, name: str) -> None:
        """Strike *name* off. Raises `NameInvalid` and `UnknownRecipient`."""
        await trio.to_thread.run_sync(self._change_sync, lambda register: register.leave(name))

    def _change_sync(self, change: Callable[[RosterState], RosterState]) -> RosterState:
        lock = FileLock(f"{self.path}.lock", thread_local=False, timeout=LOCK_TIMEOUT)
        try:
            with lock:
                found = self._read()
                changed = change(RosterState() if found is None else found.register)
                replace_file(self.path, changed.to_bytes(), mode=0o600)
        except Timeout as exc:
            raise RosterFailed(self.path, f"another process has held its lock for {LOCK_TIMEOUT:.0f} seconds") from exc
        except OSError as exc:
            raise RosterFailed(self.path, f"it cannot be changed: {exc.strerror}") from exc
        return changed

    def _read(self) -> "_RosterSnapshot | None":
        try:
            reading = _RosterSnapshot.of(self.path)
        except FileNotFoundError as exc:
            # Begun anew it would count from 1 again, and old mail could reach a new start.
            if self._was_there:
                raise RosterFailed(self.path, "the roster has vanished") from exc
            return None
        except OSError as exc:
            raise RosterFailed(self.path, f"it cannot be read: {exc.strerror}") from exc
        except ValueError as exc:
            raise RosterFailed(self.path, f"it is not a roster, and was left as it is: {exc}") from exc
        self._was_there = True
        return reading


@attrs.define(eq=False)
class _RosterSnapshot:
    """What the file said. It is kept open: then no other can get its inode, however quickly it is replaced."""

    register: RosterState
    _descriptor: int
    _written: int
    """Nanoseconds since 1970."""

    @classmethod
    def of(cls, path: Path) -> "_RosterSnapshot":
        """Read *path*. Raises `OSError` and `ValueError`."""
        with path.open("rb", buffering=0) as file:
            written = os.fstat(file.fileno()).st_mtime_ns
            reading = cls(RosterState.from_bytes(file.read()), os.dup(file.fileno()), written)
        weakref.finalize(reading, os.close, reading._descriptor)
        return reading

    def is_current(self) -> bool:
        """Whether the file still has its name, and nobody wrote into it."""
        status = os.fstat(self._descriptor)
        return status.st_nlink > 0 and status.st_mtime_ns == self._written
