"""Public names of the `coterie` package, which imports this module when a program first uses one of these names."""

from coterie.agents.events.agent_events import (
    Event,
    Finished,
    ProgressSummarized,
    RunStarted,
    TextEmitted,
    ToolEnded,
    ToolStarted,
)
from coterie.agents.events.event_reader import MessageRecorded, SessionEvent
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked, ApprovalDecided
from coterie.agents.loop.model.usage import Usage
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.spawn_request import Spawned
from coterie.errors import AgentError, ConfigInvalid
from coterie.mailbox.contract import Receipt
from coterie.orchestrator.api.errors import RequestRefused, SessionError, SessionFailed, SessionOver
from coterie.orchestrator.api.live_session import EventStream, LiveSession, SessionResult
from coterie.orchestrator.api.open_session import open_session, run_sync
from coterie.orchestrator.api.options import SessionOptions
from coterie.orchestrator.approvals.store import Approval
from coterie.orchestrator.session.overview import AgentSummary
from coterie.orchestrator.teams.team_file import TeamInvalid

__all__ = [
    "AgentChanged",
    "AgentError",
    "AgentSummary",
    "AllowForSession",
    "AllowOnce",
    "Answer",
    "Approval",
    "ApprovalAsked",
    "ApprovalDecided",
    "ConfigInvalid",
    "DenyCall",
    "Event",
    "EventStream",
    "Finished",
    "LiveSession",
    "MessageRecorded",
    "PlanPolicy",
    "ProgressSummarized",
    "Question",
    "Receipt",
    "RequestRefused",
    "RunStarted",
    "SessionError",
    "SessionEvent",
    "SessionFailed",
    "SessionOptions",
    "SessionOver",
    "SessionResult",
    "Spawned",
    "TeamInvalid",
    "TextEmitted",
    "ToolEnded",
    "ToolStarted",
    "Usage",
    "open_session",
    "run_sync",
]
