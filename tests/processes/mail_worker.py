"""Process that sends, reads or sweeps mail until it is killed; its files are checked by the test.

`python -m tests.processes.mail_worker write ROOT NAME COUNT`, `... read ROOT` or `... sweep ROOT`.
"""

import os
import sys
import uuid
from pathlib import Path

import trio

from coterie.clock import Clock
from coterie.mailbox.contract import MailLimits, Member
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Envelope, MessageId, Recipient, Sender
from coterie.mailbox.errors import MailboxFull
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.transports.abandoned_mail import dead_letter_abandoned
from coterie.mailbox.transports.file.transport import Durability, FileTransport
from tests.processes.kill_run import whole_lines


class OneReader:
    def members(self) -> dict[str, Member]:
        return {"reader": Member(name="reader", incarnation=1)}


def make_transport(root: Path, durability: Durability = "process") -> FileTransport:
    """Small segments, so that many are sealed and deleted while processes are killed."""
    bury = DeadLetters(root / "mail" / "dead").add
    limits = MailLimits(messages=2000)
    return FileTransport(root / "mail", OneReader(), None, Clock(), bury, limits, durability, segment_bytes=64 * 1024)


def message_id(name: str, sequence: int) -> MessageId:
    """Return the same id for the same message, so that copies after a kill of its sender are detected."""
    return MessageId(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {sequence}")))


def open_abandoned_mail(root: Path, roster: LocalRoster) -> tuple[FileTransport, DeadLetters]:
    dead = DeadLetters(root / "mail" / "dead")
    return FileTransport(root / "mail", roster, None, Clock(), dead.add, segment_bytes=64 * 1024), dead


async def sweep(root: Path) -> None:
    """Dead-letter the mail of ada, who is on no roster."""
    await dead_letter_abandoned(*open_abandoned_mail(root, LocalRoster()), "ada")


async def write(root: Path, name: str, count: int) -> None:
    """Send up to *count* messages, from the first without a receipt. Every other writer keeps a journal."""
    receipts = root / f"{name}.receipts"
    durability: Durability = "power" if int(name[-1]) % 2 else "process"
    post, begun = make_transport(root, durability), len(whole_lines(receipts))
    log = os.open(receipts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for sequence in range(begun + 1, count + 1):
        message = Envelope(
            sender=Sender(name=name, incarnation=1, session="s1", kind="peer"),
            recipient=Recipient(name="reader"),
            sequence=sequence,
            body="x" * (sequence * 37 % 900),
            created=0.0,
            id=message_id(name, sequence),
        )
        await send_with_retry(post, message)
        os.write(log, b"%d\n" % sequence)


async def send_with_retry(post: FileTransport, message: Envelope) -> None:
    """Send *message*, with as many retries as needed."""
    while True:
        try:
            await post.send(message)
        except MailboxFull:
            await trio.sleep(0.002)
        else:
            return


async def read(root: Path) -> None:
    """Write arriving messages into a transcript, then acknowledge them."""
    transcript = root / "transcript"
    lines = whole_lines(transcript)
    log = os.open(transcript, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.ftruncate(log, sum(len(line) + 1 for line in lines))
    seen = {MessageId(line.split()[2]) for line in lines}
    async with make_transport(root).open_inbox("reader", 1, seen=seen) as inbox:
        while True:
            await inbox.wait()
            taken = [delivery.envelope for delivery in inbox.take_nowait(50)]
            content = "".join(f"{one.sender.name} {one.sequence} {one.id}\n" for one in taken)
            os.write(log, content.encode())
            if taken:
                await inbox.acknowledge([one.id for one in taken])


if __name__ == "__main__":
    if sys.argv[1] == "write":
        trio.run(write, Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        trio.run(read if sys.argv[1] == "read" else sweep, Path(sys.argv[2]))
