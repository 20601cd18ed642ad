"""Keeping a board in step with the files of its session."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.mailbox.dead_letters import DeadLetters, LetterNumber
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.file.segments import segment_numbers
from coterie.orchestrator.cli.live.state import Board
from coterie.orchestrator.cli.mail.beside import MailboxLog
from coterie.orchestrator.events.changes import Changes, open_changes
from coterie.orchestrator.events.lines import Lines
from coterie.orchestrator.events.reader import SessionReader
from coterie.orchestrator.ledger.ledger import LEDGER
from coterie.orchestrator.ledger.line import LedgerLine
from coterie.orchestrator.overview import look_at
from coterie.orchestrator.post_office import DEAD, mail_directory
from coterie.orchestrator.session import Session


@attrs.define(eq=False)
class Lookout:
    """Reads what is new in a session onto its board."""

    session: Session
    board: Board
    _changes: Changes
    _reader: SessionReader
    _ledger: Lines
    _dead: DeadLetters
    _buried: LetterNumber | None = attrs.field(default=None, init=False)
    """The last dead letter that was read."""
    _mailboxes: dict[Path, MailboxLog] = attrs.field(factory=dict, init=False)

    def look(self) -> bool:
        """Read what is new; whether anything is. Raises `OSError`."""
        # Watched before they are read, so that nothing is written in between unseen.
        for directory in self._directories():
            self._changes.watch(directory)
        # Told before what it cost: who was started first stands first.
        changed = False
        for news in itertools.chain(self._tell(), self._post(), self._charge()):
            changed |= news
        return changed

    async def wait(self) -> None:
        """Return once something has changed in the session's files since the last call returned, or without need."""
        await self._changes.wait()

    def end(self) -> None:
        """Nobody is at work any more: read the rest, and how the session stands now. Raises `OSError`."""
        self.look()
        overview = look_at(self.session)
        self.board.end(overview.state, overview.reason)

    def close(self) -> None:
        """Give the descriptors back."""
        for mailbox in self._mailboxes.values():
            mailbox.close()

    def _directories(self) -> Iterator[Path]:
        directory, mail = self.session.directory, mail_directory(self.session)
        yield from (directory, directory / "agents", mail)
        yield from self._reader.agent_directories()
        yield from mail.glob("*/")

    def _tell(self) -> Iterator[bool]:
        for event in self._reader.sweep():
            yield self.board.take(event)

    def _charge(self) -> Iterator[bool]:
        for line in self._ledger.read(self._ledger.size()):
            self._ledger.take_off(line)
            try:
                self.board.charge(LedgerLine.from_bytes(line.content))
            except ValueError:
                continue  # `coterie costs` says what is wrong with it
            yield True

    def _post(self) -> Iterator[bool]:
        for envelope in sorted(self._stored(), key=lambda envelope: envelope.created):
            self.board.post(envelope)
            yield True
        for buried in self._dead.history(after=self._buried):
            self._buried = buried.number
            if buried.letter.envelope is not None:
                self.board.post(buried.letter.envelope, "dead")
                yield True

    def _stored(self) -> Iterator[Envelope]:
        for directory in mail_directory(self.session).glob("*/"):
            if directory not in self._mailboxes and segment_numbers(directory):
                self._mailboxes[directory] = MailboxLog.whole(directory)
        for mailbox in self._mailboxes.values():
            # That somebody has nothing to do is their state, and no traffic.
            yield from (envelope for envelope in mailbox.sweep() if envelope.kind != "idle")


@contextmanager
def open_lookout(session: Session) -> Iterator[Lookout]:
    """A board of *session*, with everything on it that has happened so far, until the block ends. Raises `OSError`."""
    board = Board(session=session.id, task=session.task, started=session.started)
    with open_changes() as changes:
        directory = session.directory
        reader, ledger = SessionReader(directory), Lines(directory / LEDGER)
        lookout = Lookout(session, board, changes, reader, ledger, DeadLetters(mail_directory(session) / DEAD))
        try:
            lookout.look()
            yield lookout
        finally:
            lookout.close()
