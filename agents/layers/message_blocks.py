"""Texts in which a model gets messages of other agents: each one in XML tags with its sender, kind and id."""

from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.prompts import render
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.message_bodies import BODIES, PlanApprovalRequest, TaskAssignment, TaskNotification

UNPROVED = "Not one tool call was made, so check what it claims."
NO_CALLS = "not one tool call, so check what it claims"


def mail_block(envelopes: Iterable[Envelope]) -> bytes:
    """Return messages as one text block for the model; bodies are escaped, so that none can imitate another message."""
    return text_block("\n".join(map(message_text, envelopes)))


def message_text(envelope: Envelope, limit: int | None = None) -> str:
    """Return a message in XML tags for the model; a text over *limit* bytes is cut, with a hint to find all of it."""
    if isinstance(report := _parse_body(envelope), TaskNotification):
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


def _parse_body(envelope: Envelope) -> object:
    """Return the parsed body of a request, response or notice; None for a text message, and for an invalid body."""
    try:
        return BODIES[envelope.kind].from_body(envelope.body) if envelope.kind in BODIES else None
    except ValueError:
        return None


def _notification(envelope: Envelope, report: TaskNotification, limit: int | None) -> str:
    sender, usage = envelope.sender, f'turns="{report.turns}" tool_calls="{report.tool_calls}"'
    # Only the system may report for another agent.
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


def _cut(text: str, limit: int | None) -> str:
    """Return *text* with escaped XML characters; if it has over *limit* bytes, cut, with a notice of its full size."""
    content = text.encode(errors="replace")
    if limit is None or len(content) <= limit:
        return escape(text)
    rest = f"[cut: {len(content):,} bytes in all; SearchTranscript finds the message by its id]"
    return f"{escape(content[:limit].decode(errors='ignore'))}\n{rest}"


def task_report_text(envelope: Envelope) -> str:
    """Return a subagent's task report as the result of the tool call that waited for it; XML characters are escaped."""
    return escape(_body_text(envelope))


def _body_text(envelope: Envelope) -> str:
    """Return the body of a message as text for the model; task assignments, reports and plans become sentences."""
    match _parse_body(envelope):
        case TaskAssignment() as task:
            return f"Task {task.task_id}: {task.subject}" if task.subject else f"Task {task.task_id}"
        case TaskNotification() as report:
            calls = f"{report.tool_calls} tool calls" if report.tool_calls else NO_CALLS
            cost = f"It took {report.turns} turns, {calls}, and ${report.cost_usd}."
            facts = f"Status: {report.status}. {report.summary}\n{cost}"
            return f"{facts}\n\n{report.result}" if report.result else facts
        case PlanApprovalRequest(agent=agent) as request if agent:
            files = ", ".join(request.files) or "it names none"
            return render("plan_request", agent=agent, id=envelope.id, plan=request.plan, files=files)
    return envelope.body
