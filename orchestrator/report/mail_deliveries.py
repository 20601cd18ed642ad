"""Mail of a session for the report: messages with delivery state, read from mailboxes, transcripts and dead letters."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import unescape

import attrs
import msgspec

from coterie.agents.events.event_reader import MailDelivered, MessageRecorded, SessionEvent
from coterie.mailbox.dead_letters import DeadLetterRecord, DeadLetters
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.mailbox.message_bodies import BODIES, MessageBody, TaskNotification
from coterie.mailbox.transports.file.cursor import Cursor
from coterie.mailbox.transports.file.log_reader import LogReader
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.mailbox.transports.file.segment_reader import parse_record
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.report.report_data import MailItem, UnreadableFile
from coterie.session_directory import DEAD_LETTER_DIRECTORY, MAIL_DIRECTORY, SessionDirectory

GIST = 160
"""Maximum characters that the report shows of the text of a message."""

_SHOWN = re.compile(
    r'<message from="([^"]*)" sender="[^"]*" kind="([^"]*)" id="([^"]*)"[^>]*>\n(.*?)\n</message>', re.DOTALL
)
"""Pattern of a message in the recipient's conversation; its text is escaped, so the text cannot end the match early."""


@attrs.define(eq=False)
class DeliveryCollector:
    """Collector of messages from the transcripts of their recipients, because not all messages are in a mailbox.

    Mail between agents of one process is usually in no mailbox file; acknowledged mail may be deleted from its file.
    """

    _texts: dict[str, list[str]] = attrs.field(factory=dict, init=False)
    """Text blocks of the last user message in each agent's transcript (stored conversation), by agent name."""
    delivered: dict[str, MailItem] = attrs.field(factory=dict, init=False)
    """Delivered messages by id, with sender, kind and text as far as the recipient's transcript shows them."""

    def handle(self, observed: SessionEvent) -> None:
        """Record a user message or a mail delivery. Pass events in order: the delivery follows its user message."""
        match observed.event:
            case MessageRecorded(role="user", content=content):
                texts = [str(block["text"]) for block in content if block.get("type") == "text" and "text" in block]
                self._texts[observed.agent] = texts
            case MailDelivered(ids=ids):
                for id_ in ids:
                    self.delivered.setdefault(id_, self._mail_item(id_, observed))
            case _:
                pass

    def _mail_item(self, id_: str, observed: SessionEvent) -> MailItem:
        unknown = MailItem(
            id=id_,
            at=observed.at,
            sender="?",
            recipient=observed.agent,
            kind="message",
            gist="",
            state="delivered",
            delivered=observed.at,
        )
        for text in self._texts.get(observed.agent, ()):
            for sender, kind, shown, words in _SHOWN.findall(text):
                if shown == id_:
                    return attrs.evolve(unknown, sender=sender, kind=kind, gist=one_line(unescape(words), GIST))
        return unknown


def read_mail_items(
    session: SessionDirectory, deliveries: DeliveryCollector
) -> tuple[list[MailItem], list[UnreadableFile]]:
    """Return all messages sorted by time, and unreadable files and messages. Marks no message as read. Blocks."""
    buried, unread = _read_dead_letters(session)
    known = {each.letter.raw for each in buried}
    found = dict(deliveries.delivered)
    for directory in sorted(
        path for path in (session.directory / MAIL_DIRECTORY).glob("*/") if path.name != DEAD_LETTER_DIRECTORY
    ):
        where = f"{MAIL_DIRECTORY}/{directory.name}"
        try:
            for line in _lines(directory):
                try:
                    letter = _to_mail_item(parse_record(line), session.id)
                except EnvelopeCorrupt as exc:
                    if line not in known:  # otherwise its owner has dead-lettered it already
                        unread.append(UnreadableFile(where=where, reason=f"invalid message: {exc.reason}"))
                    continue
                found[str(letter.id)] = _with_delivery(letter, deliveries)
        except OSError as exc:
            unread.append(UnreadableFile(where=where, reason=str(exc.strerror or exc)))
    dead = list(_mark_dead(buried, found, session.id))
    return sorted([*found.values(), *dead], key=lambda letter: letter.at), unread


def _lines(directory: Path) -> Iterator[bytes]:
    """Yield all messages of the mailbox *directory* that are on disk, as bytes, oldest first. Raises `OSError`."""
    numbers = segment_numbers(directory)
    if not numbers:
        return
    reading = LogReader.from_cursor(directory, Cursor(segment=numbers[0]))
    try:
        while True:
            try:
                line = reading.next_record()
            except FileNotFoundError:
                continue  # the segment was acknowledged and deleted after it was listed
            if line is None:
                return
            reading.skip_record(line)
            yield line.content
    finally:
        reading.close()


def _with_delivery(letter: MailItem, deliveries: DeliveryCollector) -> MailItem:
    delivery = deliveries.delivered.get(str(letter.id))
    return letter if delivery is None else attrs.evolve(letter, state="delivered", delivered=delivery.delivered)


def _read_dead_letters(session: SessionDirectory) -> tuple[list[DeadLetterRecord], list[UnreadableFile]]:
    try:
        return DeadLetters(session.directory / MAIL_DIRECTORY / DEAD_LETTER_DIRECTORY).history(), []
    except OSError as exc:
        return [], [UnreadableFile(where=f"{MAIL_DIRECTORY}/{DEAD_LETTER_DIRECTORY}", reason=str(exc.strerror or exc))]


def _mark_dead(buried: list[DeadLetterRecord], found: dict[str, MailItem], session: str) -> Iterator[MailItem]:
    """Yield a mail item for each dead letter (undeliverable message) that is not delivered; remove it from *found*."""
    for each in buried:
        letter = each.letter
        reason = f"{letter.reason}: {letter.detail}" + ("; sent again" if each.resent else "")
        if letter.envelope is None:
            yield MailItem(
                id=None,
                at=letter.at,
                sender="?",
                recipient=letter.mailbox,
                kind="corrupt",
                gist="bytes that are not a message",
                state="dead",
                reason=reason,
            )
        elif (stored := found.get(letter.envelope.id)) is None or stored.state != "delivered":
            found.pop(letter.envelope.id, None)
            yield attrs.evolve(_to_mail_item(letter.envelope, session), state="dead", reason=reason)


def _to_mail_item(envelope: Envelope, session: str) -> MailItem:
    sender = envelope.sender
    return MailItem(
        id=envelope.id,
        at=envelope.created,
        sender=sender.name if sender.session == session else f"{sender.name} of {sender.session}",
        recipient=envelope.recipient.name,
        kind=envelope.kind,
        gist=one_line(envelope.summary or _body_text(envelope), GIST),
        state="waiting",
    )


def _body_text(envelope: Envelope) -> str:
    """Return the message body as text: `status: result` of a task notification, `name: value` of other objects."""
    try:
        body = BODIES[envelope.kind].from_body(envelope.body) if envelope.kind in BODIES else None
    except ValueError:
        body = None  # of another version, or forged: shown unchanged
    match body:
        case None:
            return envelope.body
        case TaskNotification():
            return f"{body.status}: {body.result or body.summary}"
        case MessageBody():
            facts = msgspec.to_builtins(body)
            return ", ".join(f"{name}: {value}" for name, value in facts.items() if value not in ("", None, {}))
