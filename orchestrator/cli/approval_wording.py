"""Events of approvals, in words for people."""

from coterie.agents.events import AnswerRefused, ApprovalAsked, ApprovalDecided
from coterie.orchestrator.approvals.judging import HUMAN, LEAD, RULE

ApprovalEvent = ApprovalAsked | ApprovalDecided | AnswerRefused


def approval_sentence(event: ApprovalEvent) -> str:
    """What was asked for, or decided; whoever asks is named beside it."""
    match event:
        case ApprovalAsked():
            wish = "permission" if event.what == "permission" else "approval of its plan"
            return f"asks {_who(event.by)} for {wish}, {event.id}: {event.subject}"
        case ApprovalDecided(verdict="withdrawn"):
            return f"{event.id} is withdrawn: {event.feedback}"
        case ApprovalDecided():
            feedback = f": {event.feedback}" if event.feedback else ""
            return f"{event.id} is {event.verdict} by {_who(event.by)}{feedback}"
        case AnswerRefused():
            return f"an answer of {_who(event.by)} to {event.id} does not count: {event.reason}"


def _who(by: str) -> str:
    """Who decides, as one says it to the user."""
    return {HUMAN: "you", LEAD: "the lead", RULE: "the rule"}.get(by, by)
