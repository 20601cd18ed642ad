"""Client of a root's (supervisor process's) control socket: sends one request, or waits for the exit of the root."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from operator import attrgetter

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
"""Seconds for a root (supervisor process) to answer how long its exit may take; without an answer it counts as hung."""


async def send_request(root: ProcessIdentity, request: ControlRequest) -> ControlAnswer:
    """Send *request* to *root*, the root (supervisor process) of a session, and return the answer.

    If the root is still starting, the answer comes later. *request* may have `FRAME_LIMIT` bytes as JSON. Raises
    `ConfigInvalid` if the root does not answer or the request fails.
    """
    try:
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            await sock.connect(control_address(root))
            stream = trio.SocketStream(sock)
            if peer_pid(stream) is None:
                raise ConfigInvalid("session", "its socket belongs to another user; run this as the session's owner")
            await write_frame(stream, msgspec.json.encode(request))
            frame = await read_frame(stream)
    except (OSError, PeerInvalid, trio.BrokenResourceError) as exc:
        raise ConfigInvalid("session", f"process {root.pid} does not answer: {exc}; see `coterie list`") from exc
    if frame is None:
        raise ConfigInvalid("session", "the session ended before it answered the request; see `coterie list`")
    if isinstance(response := response_decoder.decode(frame), RunFailed):
        raise ConfigInvalid("agent", response.reason)
    return response


@attrs.define(eq=False, kw_only=True)
class RootExit:
    """Wait for the exit of a root (supervisor process) that was asked to end, with a timeout that the root can extend.

    If the root is late, the client asks how long its agents may still take to stop, because only the root knows.
    """

    root: ProcessIdentity
    timeout: float
    """Seconds in which a root (supervisor process) without running agents must exit."""
    limit: float = attrs.field(default=attrs.Factory(attrgetter("timeout"), takes_self=True), init=False)
    """Seconds that the whole wait may take; it grows each time the root (supervisor) asks for more time."""

    async def wait(self, wait_ended: Callable[[], Awaitable[object]]) -> bool:
        """Run *wait_ended*, which returns when the root (supervisor process) has exited, and return True.

        Return False if the timeout expires and the root does not say that it is still stopping agents.
        """
        seconds = self.timeout
        while True:
            with trio.move_on_after(seconds):
                await wait_ended()
                return True
            if not (stop_time := await self._ask_stop_time()):
                return False
            seconds = stop_time + self.timeout
            self.limit += seconds

    async def _ask_stop_time(self) -> float:
        """Return the seconds that the supervisor needs to stop its agents; 0 if it stops none or does not answer."""
        with trio.move_on_after(STOP_TIME_TIMEOUT), suppress(ConfigInvalid):
            answer = await send_request(self.root, GetStopTime())
            return answer.seconds if isinstance(answer, StopTime) else 0.0
        return 0.0
