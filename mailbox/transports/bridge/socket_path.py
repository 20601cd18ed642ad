"""The socket on which a session receives mail of other sessions: its path, security checks, and its lock file."""

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import trio

from coterie.framing import PeerInvalid
from coterie.mailbox.address import SOCKET_PATH_LIMIT, check_name
from coterie.mailbox.errors import PathError

RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"

_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class BridgeUnusable(PathError):
    """The socket for mail of other sessions, or its directory, cannot be used. The user must solve the problem."""


def bridge_directory() -> Path:
    """Return the directory for the sockets of all sessions of this user. It need not exist."""
    runtime = os.environ.get(RUNTIME_VARIABLE)
    return Path(runtime) / "coterie" if runtime else Path(f"/tmp/coterie-{os.getuid()}")  # noqa: S108 - `check_directory`


def socket_path(session: str) -> Path:
    """Return the socket path of *session*. Raises `NameInvalid`, and `BridgeUnusable` if the path is too long."""
    path = bridge_directory() / f"{check_name(session)}.sock"
    if (size := len(os.fsencode(path))) > SOCKET_PATH_LIMIT:
        reason = f"the socket path has {size} bytes, over {SOCKET_PATH_LIMIT}; set {RUNTIME_VARIABLE} to a shorter path"
        raise BridgeUnusable(path, reason)
    return path


def make_directory() -> Path:
    """Create the directory of the sockets if missing, and return it. Raises `BridgeUnusable`, also if it is unsafe."""
    directory = bridge_directory()
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        check_directory(directory)
    except OSError as exc:
        raise BridgeUnusable(directory, f"the directory cannot be used: {exc.strerror}; check its parent") from exc
    return directory


def check_directory(directory: Path) -> None:
    """Raise `BridgeUnusable` if another user could have put files into *directory*, and `OSError` if it is missing."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise BridgeUnusable(directory, "the socket directory is a link or a file; remove it")
    if status.st_uid != os.getuid():
        raise BridgeUnusable(directory, f"the directory belongs to user id {status.st_uid}; remove it")
    if (mode := stat.S_IMODE(status.st_mode)) != 0o700:
        raise BridgeUnusable(directory, f"the directory has the permissions {mode:o}; change them with `chmod 700`")


def check_uid(credentials: bytes) -> None:
    """Raise `PeerInvalid` unless these credentials (see `read_credentials`) belong to a process of this user."""
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid != os.getuid():
        raise PeerInvalid(f"the other process belongs to user {uid}; start it as user {os.getuid()}")


def read_credentials(stream: trio.SocketStream) -> bytes:
    """Return the packed process, user and group id of the peer of *stream* (`SO_PEERCRED`). Raises `OSError`."""
    return stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)


@contextlib.contextmanager
def hold_lock_file(path: Path) -> Iterator[bool]:
    """Try to lock the file *path* until the block ends. Yield True, or False if another process holds the lock.

    The kernel releases the lock of a process that dies. The file is removed when the lock is released.
    """
    descriptor = _open_lock_file(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _open_lock_file(path: Path) -> int | None:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            # The last holder may have removed the file between our open and our lock: then the lock is void.
            if os.fstat(descriptor).st_nlink:
                stack.pop_all()
                return descriptor
