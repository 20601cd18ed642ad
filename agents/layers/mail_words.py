"""Mail as the model reads it: in a fixed envelope that no body can break out of."""

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from coterie.agents.conversation import text_block
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.lifecycle import BODIES, TaskAssignment, TaskNotification


def mail_block(envelopes: Iterable[Envelope]) -> bytes:
    """Messages as one block of text; no body can end its envelope, or begin another."""
    return text_block("\n".join(map(message_text, envelopes)))


def message_text(envelope: Envelope, limit: int | None = None) -> str:
    """One message in its envelope; over *limit* bytes its beginning, and where the rest is."""
    facts = {
        "from": envelope.sender.name,
        "sender": envelope.sender.kind,
        "kind": envelope.kind,
        "id": envelope.id,
        "reply-to": envelope.in_reply_to,
        "session": envelope.sender.session,
    }
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in facts.items() if value is not None)
    return f"<message{attributes}>\n{_cut(_words(envelope), limit)}\n</message>"


def _cut(words: str, limit: int | None) -> str:
    """*words*, in which nothing is markup; the notice of a cut is ours."""
    content = words.encode(errors="replace")
    if limit is None or len(content) <= limit:
        return escape(words)
    rest = f"[cut: {len(content):,} bytes in all; SearchTranscript finds the message by its id]"
    return f"{escape(content[:limit].decode(errors='ignore'))}\n{rest}"


def report_text(envelope: Envelope) -> str:
    """What a report says, for who waited for it; instruction-shaped text in it stays text."""
    return escape(_words(envelope))


def _words(envelope: Envelope) -> str:
    """The body; what a program made of facts is put into words again."""
    try:
        match BODIES[envelope.kind].from_body(envelope.body) if envelope.kind in BODIES else None:
            case TaskAssignment() as task:
                return f"Task {task.task_id}: {task.subject}" if task.subject else f"Task {task.task_id}"
            case TaskNotification() as report:
                return _told(report)
    except ValueError:
        pass  # of another version, or forged: shown as it is
    return envelope.body


def _told(report: TaskNotification) -> str:
    calls = f"{report.tool_calls} tool calls" if report.tool_calls else "not one tool call, so check what it claims"
    facts = f"Status: {report.status}. {report.summary}\nIt took {report.turns} turns, {calls}, and ${report.cost_usd}."
    return f"{facts}\n\n{report.result}" if report.result else facts
