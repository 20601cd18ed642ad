"""Another session as a destination of mail: its address, its socket, and the directory for waiting messages."""

import base64
import binascii
import os
from pathlib import Path

import attrs

from coterie.mailbox.address import OtherSession, Socket, check_name
from coterie.mailbox.errors import NameInvalid
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, bridge_directory, check_directory, socket_path

_SOCKET_PREFIX = "uds="  # no session's id has an equals sign


@attrs.frozen(kw_only=True)
class Peer:
    """Another session as a destination, or an unknown process behind a socket."""

    session: str | None
    """Id of the session; None if only its socket is known."""
    path: Path

    @classmethod
    def at(cls, address: Socket | OtherSession) -> "Peer":
        """Return the peer at *address*. Both forms of address give an equal peer, so a session has only one queue.

        Raises `NameInvalid`, and `BridgeUnusable` if the socket path of the session is too long.
        """
        if isinstance(address, OtherSession):
            return cls(session=address.session, path=socket_path(address.session))
        is_session = address.path.parent == bridge_directory() and address.path.suffix == ".sock"
        return cls(session=check_name(address.path.stem) if is_session else None, path=address.path)

    @classmethod
    def of_directory(cls, name: str) -> "Peer | None":
        """Return the peer whose messages wait in a directory of this name; None if the name is not valid."""
        try:
            if not name.startswith(_SOCKET_PREFIX):
                return cls.at(OtherSession(check_name(name)))
            path = base64.urlsafe_b64decode(name.removeprefix(_SOCKET_PREFIX))
            return cls.at(Socket(Path(os.fsdecode(path))))
        except (NameInvalid, BridgeUnusable, binascii.Error):
            return None

    @property
    def directory(self) -> str:
        """Name of the directory in which messages for this peer wait."""
        if self.session is not None:
            return self.session
        return _SOCKET_PREFIX + base64.urlsafe_b64encode(os.fsencode(self.path)).decode()

    @property
    def address(self) -> str:
        """Address of the peer as users write it: `bridge:<session id>` or `uds:<path>`."""
        return f"uds:{self.path}" if self.session is None else f"bridge:{self.session}"

    def check_socket(self) -> None:
        """Raise `BridgeUnusable` if another user could have created the socket of this session.

        Raises `OSError` if the directory of the sockets does not exist. If `session` is None, nothing is checked.
        """
        if self.session is not None:
            check_directory(self.path.parent)
