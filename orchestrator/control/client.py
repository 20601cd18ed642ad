"""Client side of the control socket: sends one request to the root of a running session."""

import msgspec
import trio

from coterie.agents.root_link.messages import RunFailed
from coterie.errors import ConfigInvalid
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.orchestrator.control.requests import (
    ControlAnswer,
    ControlRequest,
    control_address,
    peer_pid,
    response_decoder,
)
from coterie.orchestrator.session.root_lock import RootIdentity


async def send_request(root: RootIdentity, request: ControlRequest) -> ControlAnswer:
    """Have *root* do what is asked; returns what it says when it is done. Raises `ConfigInvalid` if it is not.

    A root that is still beginning is waited for. The request must fit into a frame.
    """
    try:
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            await sock.connect(control_address(root))
            stream = trio.SocketStream(sock)
            if peer_pid(stream) is None:
                raise ConfigInvalid("session", "another user's process is where its root should be")
            await write_frame(stream, msgspec.json.encode(request))
            frame = await read_frame(stream)
    except (OSError, PeerInvalid, trio.BrokenResourceError) as exc:
        raise ConfigInvalid("session", f"its root, process {root.pid}, cannot be asked: {exc}") from exc
    if frame is None:
        raise ConfigInvalid("session", "its root has ended before it was done")
    if isinstance(response := response_decoder.decode(frame), RunFailed):
        raise ConfigInvalid("agent", response.reason)
    return response
