"""Every transport keeps every promise of `docs/mail.md`."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest

from coterie.files import Appender, frame_record
from coterie.mailbox.conformance import PROMISES
from coterie.mailbox.conformance.harness import NotApplicable, OpenTransportFactory, Promise, Tampering, TransportParts
from coterie.mailbox.contract import Transport
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.transports.file.transport import Durability, FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.mailbox.transports.bridge.bridged_transport import open_bridged_place

DOCUMENT = Path(__file__).parents[2] / "docs/mail.md"


@attrs.define(eq=False)
class _QueuePlace:
    """Storage of the in-process transport, which survives a restart of the reader."""

    tampering: Tampering | None = None
    has_macs: bool = True
    _transport: QueueTransport | None = None

    @asynccontextmanager
    async def open_transport(self, parts: TransportParts) -> AsyncIterator[Transport]:
        if self._transport is None:
            self._transport = QueueTransport(
                parts.roster, parts.keys, parts.clock, parts.store_dead_letter, parts.limits
            )
        yield self._transport


@asynccontextmanager
async def _open_queue_place() -> AsyncIterator[_QueuePlace]:
    yield _QueuePlace()


@attrs.frozen
class _Log:
    """Writes to a mailbox past the transport, as any process of the same user could."""

    directory: Path

    def write_bytes(self, name: str, raw: bytes) -> None:
        mailbox = self.directory / name
        mailbox.mkdir(parents=True, exist_ok=True)
        with Appender.open(max(mailbox.glob("*.log"), default=mailbox / "000001.log")) as log:
            log.append(raw)

    def write_record(self, name: str, envelope: Envelope) -> None:
        self.write_bytes(name, frame_record(envelope.to_bytes()))


@attrs.frozen
class _FilePlace:
    """Storage of the file transport: a directory."""

    directory: Path
    durability: Durability
    has_macs: bool = True

    @property
    def tampering(self) -> Tampering:
        return _Log(self.directory)

    @asynccontextmanager
    async def open_transport(self, parts: TransportParts) -> AsyncIterator[Transport]:
        transport = FileTransport(
            self.directory,
            parts.roster,
            parts.keys,
            parts.clock,
            parts.store_dead_letter,
            limits=parts.limits,
            durability=self.durability,
        )
        try:
            yield transport
        finally:
            transport.close()


@asynccontextmanager
async def _open_file_place(durability: Durability) -> AsyncIterator[_FilePlace]:
    with TemporaryDirectory(prefix="mail-") as directory:
        yield _FilePlace(Path(directory) / "mail", durability)


PLACES: dict[str, OpenTransportFactory] = {
    "queue": _open_queue_place,
    "file": partial(_open_file_place, "process"),
    "file on disk": partial(_open_file_place, "power"),
    "bridge": partial(open_bridged_place, _open_queue_place),
    "bridge to files": partial(open_bridged_place, partial(_open_file_place, "process")),
}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
@pytest.mark.parametrize("transport", PLACES)
async def test_a_transport_keeps(transport: str, promise: Promise) -> None:
    try:
        await promise.check(PLACES[transport])
    except NotApplicable as reason:
        pytest.skip(str(reason))


def test_suite_and_documentation_have_the_same_promises() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    documented = [(int(number), sentence) for number, sentence in re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE)]
    assert documented == [(promise.number, promise.sentence) for promise in PROMISES]
    assert [promise.number for promise in PROMISES] == list(range(1, len(PROMISES) + 1))
    assert len(PROMISES) >= 40


def test_the_suite_needs_no_test_framework() -> None:
    code = "import sys, coterie.mailbox.conformance; print('pytest' in sys.modules, 'hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
