"""Parameters of a process start, and the interface of every process starter."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

import attrs
import msgspec

from coterie.orchestrator.processes.child_process import ChildProcess

_Fields = tuple[str, str, bytes, bytes, dict[bytes, bytes]]


@attrs.define(eq=False)
class StartFailed(Exception):
    """No child came of a start, and nothing is left of it."""

    reason: str
    errno: int | None = None
    """What the kernel said, for example EAGAIN when no more processes are allowed."""
    status: int | None = None
    """Of a child that ended before it was ready, as `Child.wait` gives it."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class ProcessStart:
    """All that a child is, except its descriptors."""

    title: str
    """What `ps` shows. Cut where the room for it ends, after some 80 bytes."""
    entry: str
    """`package.module:function`. Called with the payload and the numbers of the passed descriptors; what it returns,
    None being 0, is the exit status, and an exception is status 1 with its traceback on standard error."""
    payload: bytes = attrs.field(repr=False)
    """May hold secrets."""
    directory: Path
    environment: Mapping[str, str]
    """The whole of it, for `os.environ` and for programs that the child starts."""

    def to_bytes(self) -> bytes:
        """As `from_bytes` reads it. Names that are not UTF-8 stay as they are."""
        environment = {os.fsencode(name): os.fsencode(value) for name, value in self.environment.items()}
        fields: _Fields = (self.title, self.entry, self.payload, os.fsencode(self.directory), environment)
        return msgspec.msgpack.encode(fields)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote. Raises `ValueError`."""
        try:
            title, entry, payload, directory, environment = msgspec.msgpack.decode(data, type=_Fields)
        except msgspec.DecodeError as exc:
            raise ValueError(f"it does not read as a start: {exc}") from exc
        return cls(
            title=title,
            entry=entry,
            payload=payload,
            directory=Path(os.fsdecode(directory)),
            environment={os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
        )


@contextmanager
def translate_start_errors() -> Iterator[None]:
    """What the kernel refuses in the block leaves it as `StartFailed`."""
    try:
        yield
    except OSError as exc:
        raise StartFailed(str(exc), exc.errno) from exc
    except ValueError as exc:  # a name or a value that no process can have
        raise StartFailed(str(exc)) from exc


class ProcessStarter(Protocol):
    """A way to start children."""

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """A child that has found its entry and is about to call it; the caller owns it from here.

        It gets copies of *descriptors*, which stay the caller's, closed for what it executes itself; its standard
        streams are /dev/null where no descriptor is given. It leads a session, and so a group, of its own: no
        terminal can reach it. It is killed by the kernel when this process ends. Raises `StartFailed`; then, and when
        cancelled, the child is killed and reaped.
        """
        ...
