"""Listening sockets that a sandboxed command must not reach."""

import contextlib
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import attrs

CALLER = """
import socket, sys
tcp, udp, path, name = sys.argv[1:]
for kind, family, type_, address in (
    ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp))),
    ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp))),
    ("unix", socket.AF_UNIX, socket.SOCK_STREAM, path),
    ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + name),
):
    try:
        with socket.socket(family, type_) as caller:
            caller.connect(address)
            caller.sendall(b"hello")
    except OSError as exc:
        print(kind, "refused", exc.errno)
    else:
        print(kind, "called")
"""
"""Program that connects to all listeners."""


@attrs.frozen
class Listeners:
    """Four listening sockets of different types."""

    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    abstract: socket.socket

    def addresses(self) -> list[object]:
        """Return the arguments of `CALLER`."""
        name = self.abstract.getsockname()[1:].decode()
        return [self.tcp.getsockname()[1], self.udp.getsockname()[1], self.unix.getsockname(), name]

    def reached(self) -> set[str]:
        """Return the types of sockets that got data or a connection since the last call."""
        reached = {"udp"} if _gets(lambda: self.udp.recv(100)) else set()
        for kind in ("tcp", "unix", "abstract"):
            while _gets(lambda: getattr(self, kind).accept()[0].close() or True):  # noqa: B023 - called immediately
                reached.add(kind)
        return reached


def _gets(what: object) -> bool:
    with contextlib.suppress(BlockingIOError):
        return bool(what())  # type: ignore[operator]  # a call, in the shape that suits the two above
    return False


@contextlib.contextmanager
def open_listeners(directory: Path) -> Iterator[Listeners]:
    """Listen on loopback, at a path in *directory*, and on an abstract socket."""
    with contextlib.ExitStack() as stack:

        def bound(family: int, kind: int, address: object) -> socket.socket:
            made = stack.enter_context(socket.socket(family, kind))
            made.bind(address)  # type: ignore[arg-type]  # one of the shapes that there are
            if kind == socket.SOCK_STREAM:
                made.listen(5)
            made.settimeout(0)
            return made

        yield Listeners(
            tcp=bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            udp=bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            unix=bound(socket.AF_UNIX, socket.SOCK_STREAM, str(directory / "s.sock")),
            abstract=bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0coterie-test-{secrets.token_hex(8)}"),
        )
