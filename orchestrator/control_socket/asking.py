"""Asking the root of a session that runs, from a shell."""

import msgspec
import trio

from coterie.agents.control.words import Unable
from coterie.agents.errors import ConfigInvalid
from coterie.mailbox.bridge.frames import PeerInvalid, read_frame, write_frame
from coterie.orchestrator.control_socket.requests import Answer, Request, control_address, peer_of, responses
from coterie.orchestrator.root_record import RootProcess


async def ask_root(root: RootProcess, request: Request) -> Answer:
    """Have *root* do what is asked; returns what it says when it is done. Raises `ConfigInvalid` if it is not.

    A root that is still beginning is waited for. The request must fit into a frame.
    """
    try:
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            await sock.connect(control_address(root))
            stream = trio.SocketStream(sock)
            if peer_of(stream) is None:
                raise ConfigInvalid("session", "another user's process is where its root should be")
            await write_frame(stream, msgspec.json.encode(request))
            frame = await read_frame(stream)
    except (OSError, PeerInvalid, trio.BrokenResourceError) as exc:
        raise ConfigInvalid("session", f"its root, process {root.pid}, cannot be asked: {exc}") from exc
    if frame is None:
        raise ConfigInvalid("session", "its root has ended before it was done")
    if isinstance(response := responses.decode(frame), Unable):
        raise ConfigInvalid("agent", response.reason)
    return response
