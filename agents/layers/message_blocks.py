"""Message blocks: mail in a fixed envelope, as the model reads it."""

from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.prompts import render
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.message_bodies import BODIES, PlanApprovalRequest, TaskAssignment, TaskNotification

UNPROVED = "Not one tool call was made, so check what it claims."


def mail_block(envelopes: Iterable[Envelope]) -> bytes:
    """Messages as one block of text; no body can end its envelope, or begin another."""
    return text_block("\n".join(map(message_text, envelopes)))


def message_text(envelope: Envelope, limit: int | None = None) -> str:
    """One message in its envelope; over *limit* bytes its beginning, and where the rest is."""
    if (report := _report_of(envelope)) is not None:
        return _notification(envelope, report, limit)
    facts = {
        "from": envelope.sender.name,
        "sender": envelope.sender.kind,
        "kind": envelope.kind,
        "id": envelope.id,
        "reply-to": envelope.in_reply_to,
        "session": envelope.sender.session,
    }
    return f"<message{_attributes(facts)}>\n{_cut(_body_text(envelope), limit)}\n</message>"


def _attributes(facts: Mapping[str, str | None]) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in facts.items() if value is not None)


def _report_of(envelope: Envelope) -> TaskNotification | None:
    """What it says of a task; None for other mail, and for what is no report: that is shown as it is."""
    if envelope.kind != "task_notification":
        return None
    try:
        return TaskNotification.from_body(envelope.body)
    except ValueError:
        return None


def _notification(envelope: Envelope, report: TaskNotification, limit: int | None) -> str:
    sender, usage = envelope.sender, f'turns="{report.turns}" tool_calls="{report.tool_calls}"'
    # Whoever is no part of the system speaks for itself alone.
    agent = report.agent if report.agent and sender.kind == "system" else sender.name
    facts = {
        "id": envelope.id,
        "agent": agent,
        "from": sender.name,
        "sender": sender.kind,
        "status": report.status,
    }
    parts = [
        f"<task-notification{_attributes(facts)}>",
        f"<summary>{_cut(report.summary, limit)}</summary>",
        *([f"<result>\n{_cut(report.result, limit)}\n</result>"] if report.result else []),
        *([] if report.tool_calls or report.status != "completed" else [f"<warning>{UNPROVED}</warning>"]),
        f"<usage {usage} cost_usd={quoteattr(report.cost_usd)}/>",
        "</task-notification>",
    ]
    return "\n".join(parts)


def _cut(words: str, limit: int | None) -> str:
    """*words*, in which nothing is markup; the notice of a cut is ours."""
    content = words.encode(errors="replace")
    if limit is None or len(content) <= limit:
        return escape(words)
    rest = f"[cut: {len(content):,} bytes in all; SearchTranscript finds the message by its id]"
    return f"{escape(content[:limit].decode(errors='ignore'))}\n{rest}"


def task_report_text(envelope: Envelope) -> str:
    """What a report says, for who waited for it; instruction-shaped text in it stays text."""
    return escape(_body_text(envelope))


def _body_text(envelope: Envelope) -> str:
    """The body; what a program made of facts is put into words again."""
    try:
        match BODIES[envelope.kind].from_body(envelope.body) if envelope.kind in BODIES else None:
            case TaskAssignment() as task:
                return f"Task {task.task_id}: {task.subject}" if task.subject else f"Task {task.task_id}"
            case TaskNotification() as report:
                return _notification_text(report)
            case PlanApprovalRequest(agent=agent) as request if agent:
                files = ", ".join(request.files) or "it names none"
                return render("plan_request", agent=agent, id=envelope.id, plan=request.plan, files=files)
    except ValueError:
        pass  # of another version, or forged: shown as it is
    return envelope.body


def _notification_text(report: TaskNotification) -> str:
    calls = f"{report.tool_calls} tool calls" if report.tool_calls else "not one tool call, so check what it claims"
    facts = f"Status: {report.status}. {report.summary}\nIt took {report.turns} turns, {calls}, and ${report.cost_usd}."
    return f"{facts}\n\n{report.result}" if report.result else facts
