"""Poller: reads what is new in the files of a session (events, costs, mail), and updates the session's board."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.directory_watch import PollingDirectoryWatch, open_polling_watch
from coterie.mailbox.dead_letters import DeadLetterNumber, DeadLetters
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.mail.mailbox_peek import MailboxPeek
from coterie.orchestrator.events.event_sources import LogLines
from coterie.orchestrator.events.session_reader import SessionReader
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry
from coterie.orchestrator.session.overview import read_overview
from coterie.session_directory import DEAD_LETTER_DIRECTORY, SessionDirectory, mail_directory


@attrs.define(eq=False)
class SessionPoller:
    """Reader of the files of a session that updates `board` by new events, costs and mail at each `poll`."""

    session: SessionDirectory
    board: SessionBoard
    _changes: PollingDirectoryWatch
    _reader: SessionReader
    _ledger: LogLines
    _dead: DeadLetters
    _last_dead: DeadLetterNumber | None = attrs.field(default=None, init=False)
    """Number of the last dead letter (undeliverable message) that was read; None before the first."""
    _mailboxes: dict[Path, MailboxPeek] = attrs.field(factory=dict, init=False)

    def poll(self) -> bool:
        """Read new events, mail and costs into the board; return True if the board changed. Raises `OSError`."""
        # Watched before they are read, so that no write is missed in between.
        for directory in self._directories():
            self._changes.watch(directory)
        # Events before costs, so that agents are listed in the order in which they started.
        changed = False
        for news in itertools.chain(self._poll_events(), self._poll_mail(), self._poll_costs()):
            changed |= news
        return changed

    async def wait(self) -> None:
        """Wait for a change in the session's files since the last call; may also return without a change."""
        await self._changes.wait()

    def end(self) -> None:
        """Read the last events into the board, and set the session's final state on it. Raises `OSError`."""
        self.poll()
        overview = read_overview(self.session)
        self.board.end(overview.state, overview.reason)

    def close(self) -> None:
        """Close the mailbox files that were opened for reading."""
        for mailbox in self._mailboxes.values():
            mailbox.close()

    def _directories(self) -> Iterator[Path]:
        directory, mail = self.session.directory, mail_directory(self.session)
        yield from (directory, directory / "agents", mail)
        yield from self._reader.agent_directories()
        yield from mail.glob("*/")

    def _poll_events(self) -> Iterator[bool]:
        for event in self._reader.read_new():
            yield self.board.handle(event)

    def _poll_costs(self) -> Iterator[bool]:
        for line in self._ledger.read(self._ledger.size()):
            self._ledger.mark_read(line)
            try:
                self.board.add_cost(LedgerEntry.from_bytes(line.content))
            except ValueError:
                continue  # reported by `coterie costs`
            yield True

    def _poll_mail(self) -> Iterator[bool]:
        for envelope in sorted(self._stored(), key=lambda envelope: envelope.created):
            self.board.add_mail(envelope)
            yield True
        for buried in self._dead.history(after=self._last_dead):
            self._last_dead = buried.number
            if buried.letter.envelope is not None:
                self.board.add_mail(buried.letter.envelope, "dead")
                yield True

    def _stored(self) -> Iterator[Envelope]:
        for directory in mail_directory(self.session).glob("*/"):
            if directory not in self._mailboxes and segment_numbers(directory):
                self._mailboxes[directory] = MailboxPeek.whole(directory)
        for mailbox in self._mailboxes.values():
            # Idle notices are agent states rather than messages.
            yield from (envelope for envelope in mailbox.sweep() if envelope.kind != "idle")


@contextmanager
def open_poller(session: SessionDirectory) -> Iterator[SessionPoller]:
    """Yield a poller with a board of *session* up to now; close the files read after the block. Raises `OSError`."""
    board = SessionBoard(session=session.id, task=session.task, started=session.started)
    with open_polling_watch() as changes:
        directory = session.directory
        reader, ledger = SessionReader(directory), LogLines(directory / LEDGER)
        poller = SessionPoller(
            session, board, changes, reader, ledger, DeadLetters(mail_directory(session) / DEAD_LETTER_DIRECTORY)
        )
        try:
            poller.poll()
            yield poller
        finally:
            poller.close()
