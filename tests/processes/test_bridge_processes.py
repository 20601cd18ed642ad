"""The bridge between real processes: kill -9 during a stream of messages loses and duplicates none."""

import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from coterie.clock import Clock
from coterie.mailbox.address import OtherSession
from coterie.mailbox.contract import DeadLetter, MailLimits, Receipt
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.errors import MailboxFailed, MailboxFull
from coterie.mailbox.transports.bridge.listener import open_bridge
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, socket_path
from coterie.mailbox.transports.bridge.transport import BridgeTransport, open_forwarder
from tests.processes import bridge_receiver

pytestmark = pytest.mark.slow

HOME = OtherSession("home")
STRANGER = """
import os, socket, sys
os.setuid(65534)
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(5)
peer.connect(sys.argv[1])
print(peer.recv(999))
"""


@attrs.define(eq=False)
class Stream:
    """Session `away`, which sends to session `home`, whose processes are killed."""

    root: Path
    transport: BridgeTransport
    dead: list[DeadLetter] = attrs.field(factory=list)
    receipted: list[str] = attrs.field(factory=list)

    @property
    def mail(self) -> Path:
        """Socket of session `home`."""
        return self.root / "home"

    @asynccontextmanager
    async def receiver(self, *death: str) -> AsyncIterator[None]:
        """Start a process that listens; it is killed at the end of the block."""
        command = [sys.executable, "-P", bridge_receiver.__file__, "home", str(self.mail), *death]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220 - starting it is quick
            assert process.stdout is not None
            try:
                assert await trio.to_thread.run_sync(process.stdout.readline) == b"ready\n"
                yield
            finally:
                process.kill()

    async def send(self) -> None:
        """Send the next message, and record its receipt."""
        number = len(self.receipted) + 1
        envelope = Envelope(
            sender=Sender(name="alice", incarnation=1, session="away", kind="peer"),
            recipient=Recipient(name="main"),
            sequence=number,
            body=f"message {number}",
            created=Clock().now(),
        )
        await self.transport.send(envelope, HOME)
        self.receipted.append(envelope.id)

    async def drain(self) -> None:
        """Forward until the outbox is empty."""
        while list((self.root / "away" / "outgoing").glob("*/*.json")):
            await self.transport.forward()
            await trio.lowlevel.checkpoint()

    def check(self) -> None:
        """Check that every message with a receipt was delivered once, in order."""
        assert [envelope.id for envelope in bridge_receiver.read_log(self.mail)] == self.receipted
        assert self.dead == []


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    dead: list[DeadLetter] = []
    transport = BridgeTransport(
        "away", tmp_path / "away", Clock(), dead.append, limits=MailLimits(messages=50), patience=5
    )
    (tmp_path / "home").mkdir()
    with tempfile.TemporaryDirectory(prefix="run-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield Stream(tmp_path, transport, dead)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_message_in_transit_when_the_receiver_dies_arrives_once(stream: Stream, moment: str) -> None:
    """Killed before the message is stored, or before its reply: the message is sent again, and dropped as a copy."""
    with trio.fail_after(30):
        async with stream.receiver(moment, "5"):
            for _ in range(10):
                await stream.send()
        async with stream.receiver():
            await stream.drain()
            await stream.send()
    stream.check()


async def test_kill_9_during_a_stream_loses_and_duplicates_nothing(stream: Stream) -> None:
    dice, is_over = random.Random(7), trio.Event()
    failures: list[MailboxFailed] = []
    # Without a rate limit, so that the sender never waits for the receiver that counts.
    tell, told = trio.open_memory_channel[None](math.inf)

    async def keep_sending() -> None:
        while not is_over.is_set():
            try:
                await stream.send()
                tell.send_nowait(None)
            except MailboxFull:
                await trio.sleep(0.01)

    with trio.fail_after(60):
        forwarding = open_forwarder(stream.transport, failures.append, every=0.02)
        async with forwarding, trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending)
            for _ in range(5):
                async with stream.receiver():
                    for _ in range(dice.randrange(10, 80)):
                        await told.receive()
            is_over.set()
        async with stream.receiver():
            await stream.drain()
    assert not failures
    assert len(stream.receipted) > 50
    stream.check()


async def test_socket_is_replaced_only_after_its_session_was_killed(stream: Stream) -> None:
    with trio.fail_after(30):
        async with stream.receiver():
            with pytest.raises(BridgeUnusable, match="another process receives mail"):
                async with open_bridge("home", stream.mail, _never, clock=Clock(), bury=stream.dead.append):
                    pytest.fail("robbed")
        assert socket_path("home").exists(), "a killed process leaves its socket"
        async with open_bridge("home", stream.mail, _never, clock=Clock(), bury=stream.dead.append):
            await stream.send()
    assert not socket_path("home").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user; run the tests as root")
async def test_process_of_another_user_is_refused(stream: Stream) -> None:
    """Refused by the directory and, if that were open, by the kernel's credentials."""
    async with stream.receiver():
        path = socket_path("home")
        command = [sys.executable, "-c", STRANGER, str(path)]
        shut = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        assert b"PermissionError" in shut.stderr
        for place in (path, path.parent, path.parent.parent):
            place.chmod(0o777)
        opened = await trio.run_process(command, capture_stdout=True)
    assert b"the other process belongs to user 65534" in opened.stdout


async def _never(envelope: Envelope) -> Receipt:
    raise AssertionError(envelope)
