"""Client side of the control socket: one request to the root of a running session, and the wait for its end."""

from collections.abc import Awaitable, Callable

import attrs
import msgspec
import trio

from coterie.agents.root_link.messages import RunFailed
from coterie.errors import ConfigInvalid
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.orchestrator.control.requests import (
    ControlAnswer,
    ControlRequest,
    GetStopTime,
    StopTime,
    control_address,
    peer_pid,
    response_decoder,
)
from coterie.process_identity import ProcessIdentity

STOP_TIME_TIMEOUT = 2.0
"""Seconds in which a root answers how long it may still take to end; one that does not is taken for hung."""


async def send_request(root: ProcessIdentity, request: ControlRequest) -> ControlAnswer:
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


@attrs.define(eq=False, kw_only=True)
class RootExit:
    """Wait for the end of a root that was told to end.

    The root knows how long the agents have that it stops. A client does not: it asks a root that is late.
    """

    root: ProcessIdentity
    patience: float
    """Seconds in which a root has ended that has no agent to stop, or that has stopped all of them."""
    limit: float = attrs.field(init=False)
    """Seconds that the whole wait may take, as far as it is known."""

    @limit.default
    def _first_limit(self) -> float:
        return self.patience

    async def wait(self, wait_ended: Callable[[], Awaitable[object]]) -> bool:
        """Return True when *wait_ended* has returned; False if the root hangs."""
        seconds = self.patience
        while True:
            with trio.move_on_after(seconds):
                await wait_ended()
                return True
            if not (stop_time := await self._ask_stop_time()):
                return False
            seconds = stop_time + self.patience
            self.limit += seconds

    async def _ask_stop_time(self) -> float:
        """Return the seconds in which the root has stopped its agents; 0 if it stops none, or does not answer."""
        with trio.move_on_after(STOP_TIME_TIMEOUT):
            try:
                answer = await send_request(self.root, GetStopTime())
            except ConfigInvalid:
                return 0.0
            return answer.seconds if isinstance(answer, StopTime) else 0.0
        return 0.0
