"""Session that receives mail into one log, in a separate process: `ID MAIL [before|after COUNT]`.

With the last two arguments it kills itself at its COUNT-th message, before or after that message is in the log.
"""

import os
import signal
import sys
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.files import Appender, check_record, frame_record
from coterie.mailbox.contract import DeadLetter, Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.transports.bridge.listener import AcceptPolicy, open_bridge

LOG = "delivered.jsonl"


def read_log(mail: Path) -> list[Envelope]:
    """Return the delivered messages in order; torn records are skipped."""
    envelopes: list[Envelope] = []
    for line in (mail / LOG).read_bytes().split(b"\n") if (mail / LOG).exists() else ():
        if line:
            try:
                check_record(line)
            except ValueError:
                continue
            envelopes.append(Envelope.from_bytes(line))
    return envelopes


@attrs.define(eq=False)
class Store:
    """Minimal transport that keeps the contract: stores in one write and drops known ids."""

    log: Appender
    ids: set[str]
    death: tuple[str, int] | None
    count: int = 0

    async def deliver(self, envelope: Envelope) -> Receipt:
        self.count += 1
        self._die_if(("before", self.count))
        if envelope.id not in self.ids:
            self.log.append(frame_record(envelope.to_bytes()))
            self.ids.add(envelope.id)
        self._die_if(("after", self.count))
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="file", stored=Clock().now())

    def _die_if(self, moment: tuple[str, int]) -> None:
        if moment == self.death:
            os.kill(os.getpid(), signal.SIGKILL)


def reject_dead_letter(letter: DeadLetter) -> None:
    """Crash hook that does nothing."""
    raise AssertionError(letter)


async def run(session: str, mail: Path, death: tuple[str, int] | None) -> None:
    """Receive mail until killed."""
    terms = AcceptPolicy(policy="accept", per_minute=6e6, burst=1_000_000, repeat_window=0)
    with Appender.open(mail / LOG) as log:
        store = Store(log, {envelope.id for envelope in read_log(mail)}, death)
        async with open_bridge(session, mail, store.deliver, clock=Clock(), bury=reject_dead_letter, terms=terms):
            print("ready", flush=True)  # noqa: T201 - the sign that the test waits for
            await trio.sleep_forever()


if __name__ == "__main__":
    _, session_id, directory, *moment = sys.argv
    trio.run(run, session_id, Path(directory), (moment[0], int(moment[1])) if moment else None)
