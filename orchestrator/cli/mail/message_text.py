"""Text of messages, hops and dead letters for people."""

import time
from collections.abc import Sequence
from textwrap import indent

import attrs
import click

from coterie.mailbox.dead_letters import DeadLetterRecord
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.cli.output import one_line, sanitize

SHOWN = 72
"""Characters of a message that one line shows."""
REMEMBERED = 10_000
"""Messages on their way that a view can name; of older ones it shows the id."""
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def age_text(seconds: float) -> str:
    """How long that is, in its largest unit."""
    size, unit = next((unit for unit in UNITS if seconds >= unit[0]), UNITS[-1])
    return f"{max(0, int(seconds // size))} {unit}"


def message_text(envelope: Envelope, *, session: str, now: float, address: str | None = None) -> str:
    """A whole message as the mail of *session* has it: a head, then its summary and its body.

    One for another session is shown with its *address*.
    """
    way = _route_text(envelope, session) + (f" of {address}" if address else "")
    facts = [_moment(envelope.created), way, envelope.id]
    if envelope.kind != "message":
        facts.append(envelope.kind)
    if envelope.in_reply_to is not None:
        facts.append(f"answers {envelope.in_reply_to}")
    if envelope.is_expired(now):
        facts.append("expired")
    head = click.style("  ".join(one_line(fact, 3 * SHOWN) for fact in facts), bold=True)
    parts = [envelope.summary, envelope.body] if envelope.summary else [envelope.body]
    return head + "\n" + indent(sanitize("\n\n".join(parts)), "    ")


def dead_letter_text(buried: DeadLetterRecord, *, session: str) -> str:
    """A dead letter in two lines, why it died and what it is; one that was sent again has a third."""
    letter = buried.letter
    head = f"{_moment(letter.at)}  {one_line(f'{letter.mailbox}: {letter.reason}, {letter.detail}', 3 * SHOWN)}"
    if letter.envelope is None:
        what = f"{len(letter.raw):,} bytes: {letter.raw[:SHOWN]!r}"
    else:
        what = f"{_route_text(letter.envelope, session)}: {_gist(letter.envelope)}"
    lines = [f"{click.style(f'{buried.number:>6}', bold=True)}  {head}", f"{'':6}  {one_line(what, 3 * SHOWN)}"]
    if buried.resent is not None:
        lines.append(f"{'':6}  sent again {_moment(buried.resent.at)} as {buried.resent.id}")
    return "\n".join(lines)


@attrs.define(eq=False)
class HistoryText:
    """Names messages also when only their id is told, as long as it has seen them before."""

    _session: str
    _known: dict[MessageId, str] = attrs.field(factory=dict, init=False)

    def line(self, passage: MessageHop) -> str:
        """A step of a message, in one line."""
        self.learn(passage)
        if passage.id is None:
            what = f"bytes in the mail of {passage.mailbox} that are no message"
        else:
            what = self._known.get(passage.id, f"{passage.mailbox}: {passage.id}")
        clock = time.strftime("%H:%M:%S", time.localtime(passage.at)) if passage.at else "--:--:--"
        reason = f" ({passage.reason})" if passage.reason else ""
        step = click.style(f"{passage.kind:<9}", bold=True)
        return f"{click.style(clock, dim=True)} {step}  {one_line(what + reason, 3 * SHOWN)}"

    def learn(self, passage: MessageHop) -> None:
        """Remember what the message of *passage* is, if it says so."""
        if passage.envelope is None:
            return
        self._known[passage.envelope.id] = f"{_route_text(passage.envelope, self._session)}: {_gist(passage.envelope)}"
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def align_columns(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Lines of aligned columns: the first *left* begin at the left, the others end at the right."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    aligned = [
        [cell.ljust(width) if at < left else cell.rjust(width) for cell in column]
        for at, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    return ["  ".join(row) for row in zip(*aligned, strict=True)]


def _route_text(envelope: Envelope, session: str) -> str:
    sender = envelope.sender
    stranger = f" of {sender.session}" if sender.session != session else ""
    return f"{sender.name} ({sender.kind}){stranger} -> {envelope.recipient.name}"


def _gist(envelope: Envelope) -> str:
    kind = "" if envelope.kind == "message" else f"[{envelope.kind}] "
    return kind + one_line(envelope.summary or envelope.body, SHOWN)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
