"""The calling end of a bridge: a connection to another session, on which letters are sent one by one."""

import contextlib
from collections.abc import AsyncIterator

import attrs
import trio

from coterie.mailbox.bridge.frames import Answer, Hello, PeerInvalid, read_frame, write_frame
from coterie.mailbox.bridge.peer import Peer
from coterie.mailbox.bridge.place import BridgeUnusable, check_uid, read_credentials
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import BridgeRefused, MailboxError
from coterie.mailbox.faults import delay, strike


@attrs.define(eq=False)
class PeerSilent(MailboxError):
    """Nobody listens, or no answer came: whether a letter was taken is not known, so it must be sent again."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} does not answer: {self.reason}"


@attrs.define(eq=False)
class Line:
    """A connection on which the other session has said that we are welcome."""

    _address: str
    _stream: trio.SocketStream
    _patience: float

    async def send(self, envelope: Envelope) -> Answer:
        """What became of *envelope* there. Raises `PeerSilent`; then, or cancelled, the line is of no more use."""
        name = envelope.recipient.name
        await delay("bridge", name)
        if strike("drop", "bridge", name) is not None:
            raise PeerSilent(self._address, "what was sent is lost")
        try:
            if strike("duplicate", "bridge", name) is not None:
                await self._ask(envelope.to_bytes())
            return await self._ask(envelope.to_bytes())
        except PeerInvalid as exc:
            raise PeerSilent(self._address, str(exc)) from exc

    async def greet(self, session: str, expected: str | None) -> None:
        """Say that we are *session*. Raises `PeerSilent`, and `BridgeRefused` if we are not welcome."""
        try:
            answer = await self._ask(Hello(session=session).to_bytes())
        except PeerInvalid as exc:
            raise BridgeRefused(self._address, f"what listens there is no bridge: {exc}") from exc
        if answer.outcome != "welcome":
            raise BridgeRefused(self._address, answer.reason)
        if expected not in (None, answer.session):
            raise BridgeRefused(self._address, f"session {answer.session!r} listens there")

    async def _ask(self, question: bytes) -> Answer:
        """Raises `PeerInvalid` for an answer that cannot be read, and `PeerSilent` if there is none."""
        try:
            with trio.fail_after(self._patience):
                # One that refuses closes at once, and its words can be read although ours were not.
                with contextlib.suppress(trio.BrokenResourceError):
                    await write_frame(self._stream, question)
                frame = await read_frame(self._stream)
        except trio.TooSlowError as exc:
            raise PeerSilent(self._address, f"nothing came in {self._patience:g} seconds") from exc
        except trio.BrokenResourceError as exc:
            raise PeerSilent(self._address, "the connection broke") from exc
        if frame is None:
            raise PeerSilent(self._address, "it closed the connection")
        return Answer.from_bytes(frame)


@contextlib.asynccontextmanager
async def open_line(peer: Peer, *, session: str, patience: float) -> AsyncIterator[Line]:
    """A line from *session* to *peer*, which must answer within *patience* seconds, each time.

    Raises `PeerSilent` if nobody listens, and `BridgeRefused` if it is somebody else or does not want us.
    """
    try:
        peer.check_place()
        stream = await trio.open_unix_socket(peer.path)
    except BridgeUnusable as exc:
        raise BridgeRefused(peer.address, str(exc)) from exc
    except OSError as exc:
        raise PeerSilent(peer.address, exc.strerror or str(exc)) from exc
    async with stream:
        try:
            check_uid(read_credentials(stream))
        except PeerInvalid as exc:
            raise BridgeRefused(peer.address, exc.reason) from exc
        line = Line(peer.address, stream, patience)
        await line.greet(session, peer.session)
        yield line
