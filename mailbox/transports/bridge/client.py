"""Client connection to the bridge of another session."""

import contextlib
from collections.abc import AsyncIterator

import attrs
import trio

from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import BridgeRefused, MailboxError
from coterie.mailbox.fault_points import delay, trigger
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.protocol import DeliveryReply, Hello
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, check_uid, read_credentials


@attrs.define(eq=False)
class PeerTimeout(MailboxError):
    """Nobody listens, or no answer came: whether a letter was taken is not known, so it must be sent again."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} does not answer: {self.reason}"


@attrs.define(eq=False)
class PeerConnection:
    """A connection on which the other session has said that we are welcome."""

    _address: str
    _stream: trio.SocketStream
    _patience: float

    async def send(self, envelope: Envelope) -> DeliveryReply:
        """What became of *envelope* there. Raises `PeerTimeout`; then, or cancelled, the line is of no more use."""
        name = envelope.recipient.name
        await delay("bridge", name)
        if trigger("drop", "bridge", name) is not None:
            raise PeerTimeout(self._address, "what was sent is lost")
        try:
            if trigger("duplicate", "bridge", name) is not None:
                await self._request(envelope.to_bytes())
            return await self._request(envelope.to_bytes())
        except PeerInvalid as exc:
            raise PeerTimeout(self._address, str(exc)) from exc

    async def handshake(self, session: str, expected: str | None) -> None:
        """Say that we are *session*. Raises `PeerTimeout`, and `BridgeRefused` if we are not welcome."""
        try:
            answer = await self._request(Hello(session=session).to_bytes())
        except PeerInvalid as exc:
            raise BridgeRefused(self._address, f"what listens there is no bridge: {exc}") from exc
        if answer.outcome != "welcome":
            raise BridgeRefused(self._address, answer.reason)
        if expected not in (None, answer.session):
            raise BridgeRefused(self._address, f"session {answer.session!r} listens there")

    async def _request(self, question: bytes) -> DeliveryReply:
        """Raises `PeerInvalid` for an answer that cannot be read, and `PeerTimeout` if there is none."""
        try:
            with trio.fail_after(self._patience):
                # One that refuses closes at once, and its words can be read although ours were not.
                with contextlib.suppress(trio.BrokenResourceError):
                    await write_frame(self._stream, question)
                frame = await read_frame(self._stream)
        except trio.TooSlowError as exc:
            raise PeerTimeout(self._address, f"nothing came in {self._patience:g} seconds") from exc
        except trio.BrokenResourceError as exc:
            raise PeerTimeout(self._address, "the connection broke") from exc
        if frame is None:
            raise PeerTimeout(self._address, "it closed the connection")
        return DeliveryReply.from_bytes(frame)


@contextlib.asynccontextmanager
async def open_connection(peer: Peer, *, session: str, patience: float) -> AsyncIterator[PeerConnection]:
    """A line from *session* to *peer*, which must answer within *patience* seconds, each time.

    Raises `PeerTimeout` if nobody listens, and `BridgeRefused` if it is somebody else or does not want us.
    """
    try:
        peer.check_socket()
        stream = await trio.open_unix_socket(peer.path)
    except BridgeUnusable as exc:
        raise BridgeRefused(peer.address, str(exc)) from exc
    except OSError as exc:
        raise PeerTimeout(peer.address, exc.strerror or str(exc)) from exc
    async with stream:
        try:
            check_uid(read_credentials(stream))
        except PeerInvalid as exc:
            raise BridgeRefused(peer.address, exc.reason) from exc
        line = PeerConnection(peer.address, stream, patience)
        await line.handshake(session, peer.session)
        yield line
