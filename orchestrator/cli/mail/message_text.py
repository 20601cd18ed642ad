"""Rendering of messages, steps of messages (such as delivered), and dead letters (undeliverable messages) as text."""

from textwrap import indent

import attrs
import click

from coterie.mailbox.dead_letters import DeadLetterRecord
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.cli.output import format_clock, format_time, one_line, sanitize

SHOWN = 72
"""Maximum number of characters of a message's text that are shown on one line."""
REMEMBERED = 10_000
"""Number of newest messages whose text `HistoryText` keeps; later steps of older messages show only the message id."""


def message_text(envelope: Envelope, *, session: str, now: float, address: str | None = None) -> str:
    """Return a complete message as text: a head line with time, sender, recipient and id, then summary and body.

    *session* is the id of the session that stores the message; *address* is the session to which it is queued, if any.
    """
    way = _route_text(envelope, session) + (f" of {address}" if address else "")
    facts = [format_time(envelope.created), way, envelope.id]
    if envelope.kind != "message":
        facts.append(envelope.kind)
    if envelope.in_reply_to is not None:
        facts.append(f"reply to {envelope.in_reply_to}")
    if envelope.is_expired(now):
        facts.append("expired")
    head = click.style("  ".join(one_line(fact, 3 * SHOWN) for fact in facts), bold=True)
    parts = [envelope.summary, envelope.body] if envelope.summary else [envelope.body]
    return head + "\n" + indent(sanitize("\n\n".join(parts)), "    ")


def dead_letter_text(record: DeadLetterRecord, *, session: str) -> str:
    """Return a dead letter (undeliverable message) as two lines, reason and message, or three if it was sent again."""
    letter = record.letter
    head = f"{format_time(letter.at)}  {one_line(f'{letter.mailbox}: {letter.reason}, {letter.detail}', 3 * SHOWN)}"
    if letter.envelope is None:
        what = f"{len(letter.raw):,} bytes: {letter.raw[:SHOWN]!r}"
    else:
        what = f"{_route_text(letter.envelope, session)}: {_gist(letter.envelope)}"
    lines = [f"{click.style(f'{record.number:>6}', bold=True)}  {head}", f"{'':6}  {one_line(what, 3 * SHOWN)}"]
    if record.resent is not None:
        lines.append(f"{'':6}  sent again {format_time(record.resent.at)} as {record.resent.id}")
    return "\n".join(lines)


@attrs.define(eq=False)
class HistoryText:
    """Renderer of steps of messages; it keeps texts of recent messages, because steps such as "delivered" lack them."""

    _session: str
    _known: dict[MessageId, str] = attrs.field(factory=dict, init=False)

    def line(self, hop: MessageHop) -> str:
        """Return one step of a message as one line: time, kind of step, sender, recipient and beginning of the text."""
        self.learn(hop)
        if hop.id is None:
            what = f"bytes in the mail of {hop.mailbox} that are not a message"
        else:
            what = self._known.get(hop.id, f"{hop.mailbox}: {hop.id}")
        clock = format_clock(hop.at)
        reason = f" ({hop.reason})" if hop.reason else ""
        step = click.style(f"{hop.kind:<9}", bold=True)
        return f"{click.style(clock, dim=True)} {step}  {one_line(what + reason, 3 * SHOWN)}"

    def learn(self, hop: MessageHop) -> None:
        """Store sender, recipient and beginning of the message of *hop*, to show them for its later steps."""
        if hop.envelope is None:
            return
        self._known[hop.envelope.id] = f"{_route_text(hop.envelope, self._session)}: {_gist(hop.envelope)}"
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def _route_text(envelope: Envelope, session: str) -> str:
    sender = envelope.sender
    stranger = f" of {sender.session}" if sender.session != session else ""
    return f"{sender.name} ({sender.kind}){stranger} -> {envelope.recipient.name}"


def _gist(envelope: Envelope) -> str:
    kind = "" if envelope.kind == "message" else f"[{envelope.kind}] "
    return kind + one_line(envelope.summary or envelope.body, SHOWN)
