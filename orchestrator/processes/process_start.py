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
    """A child could not be started; no process remains."""

    reason: str
    errno: int | None = None
    """Error number of the kernel, for example EAGAIN if no more processes are allowed."""
    status: int | None = None
    """Status of a child that ended before it was ready, as `ChildProcess.wait` returns it."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class ProcessStart:
    """Parameters of a new child, except its descriptors."""

    title: str
    """Process title that `ps` shows, cut after about 80 bytes."""
    entry: str
    """Function `package.module:function` to call with the payload and the numbers of the passed descriptors. Its result
    is the exit status, with None as 0; an exception is status 1 with its traceback on standard error."""
    payload: bytes = attrs.field(repr=False)
    """Argument of the entry; may contain secrets."""
    directory: Path
    environment: Mapping[str, str]
    """Complete environment of the child."""

    def to_bytes(self) -> bytes:
        """Encode for `from_bytes`. Names that are not UTF-8 are preserved."""
        environment = {os.fsencode(name): os.fsencode(value) for name, value in self.environment.items()}
        fields: _Fields = (self.title, self.entry, self.payload, os.fsencode(self.directory), environment)
        return msgspec.msgpack.encode(fields)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode the result of `to_bytes`. Raises `ValueError`."""
        try:
            title, entry, payload, directory, environment = msgspec.msgpack.decode(data, type=_Fields)
        except msgspec.DecodeError as exc:
            raise ValueError(f"invalid process start: {exc}") from exc
        return cls(
            title=title,
            entry=entry,
            payload=payload,
            directory=Path(os.fsdecode(directory)),
            environment={os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
        )


@contextmanager
def translate_start_errors() -> Iterator[None]:
    """Translate `OSError` and `ValueError` of the block to `StartFailed`."""
    try:
        yield
    except OSError as exc:
        raise StartFailed(str(exc), exc.errno) from exc
    except ValueError as exc:  # an argument or environment that exec cannot pass, for example with a null byte
        raise StartFailed(str(exc)) from exc


class ProcessStarter(Protocol):
    """Interface of a starter of child processes."""

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """Start a child and return it once it has imported its entry; the caller owns the child.

        The child gets copies of *descriptors*, which are close-on-exec in the child; the caller keeps its own. Standard
        streams without a descriptor are /dev/null. The child leads a new session and process group, so no terminal
        signals it. The kernel kills it when this process ends. Raises `StartFailed`; after an error or a cancellation
        the child is killed and reaped.
        """
        ...
