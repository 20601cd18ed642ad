"""Parameters of a process start, and the interface that all process starters implement."""

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
    """Error: an agent or another child process could not be started. No process remains."""

    reason: str
    errno: int | None = None
    """Error number of the operating system, for example EAGAIN if no more processes are allowed; None without one."""
    status: int | None = None
    """Exit status or negative signal number of a child that ended before it was ready; None if no child did."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class ProcessStart:
    """Parameters of a new child process, except the file descriptors that are passed to it."""

    title: str
    """Process title that `ps` shows, cut to the length of the command line that the process was started with."""
    entry: str
    """Function `package.module:function` that the child calls with *payload* and the numbers of its passed descriptors.
    The result is the exit status (None is 0); an exception is printed and gives status 1."""
    payload: bytes = attrs.field(repr=False)
    """Argument of the entry function; it may contain secrets, so `repr` does not show it."""
    directory: Path
    environment: Mapping[str, str]
    """Complete environment of the child; nothing is inherited."""

    def to_bytes(self) -> bytes:
        """Encode these parameters for `from_bytes` in the child. Variables and paths need not be UTF-8."""
        environment = {os.fsencode(name): os.fsencode(value) for name, value in self.environment.items()}
        fields: _Fields = (self.title, self.entry, self.payload, os.fsencode(self.directory), environment)
        return msgspec.msgpack.encode(fields)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode the result of `to_bytes`. Raises `ValueError` if *data* is invalid."""
        try:
            title, entry, payload, directory, environment = msgspec.msgpack.decode(data, type=_Fields)
        except msgspec.DecodeError as exc:
            raise ValueError(f"the parameters of a new process cannot be decoded: {exc}; please report this") from exc
        return cls(
            title=title,
            entry=entry,
            payload=payload,
            directory=Path(os.fsdecode(directory)),
            environment={os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
        )


@contextmanager
def translate_start_errors() -> Iterator[None]:
    """Translate each `OSError` and `ValueError` that is raised in the block to `StartFailed`."""
    try:
        yield
    except OSError as exc:
        raise StartFailed(str(exc), exc.errno) from exc
    except ValueError as exc:  # an argument or environment that exec cannot pass, for example with a null byte
        raise StartFailed(str(exc)) from exc


class ProcessStarter(Protocol):
    """Interface for starting child processes."""

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """Start a child process, and return its handle once the child has imported its entry function.

        The caller owns the child and must wait for it. The child gets close-on-exec copies of *descriptors*; the
        caller's own stay open. Its standard input is /dev/null, and so are *stdout* and *stderr* if None. It leads a
        new session and process group, so no terminal signals it, and the kernel kills it when this process ends. Raises
        `StartFailed`. After an error or a cancellation the child is killed and reaped.
        """
        ...
