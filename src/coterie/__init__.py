"""Coterie runs a team of Claude agents as operating-system processes.

Importing this package imports nothing else; a public name is loaded when it is first used. `docs/python.md` lists them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:  # the names in `_OFFERED`, for type checkers
    from coterie.agents.events.agent_events import Event as Event
    from coterie.agents.events.agent_events import Finished as Finished
    from coterie.agents.events.agent_events import ProgressSummarized as ProgressSummarized
    from coterie.agents.events.agent_events import RunStarted as RunStarted
    from coterie.agents.events.agent_events import TextEmitted as TextEmitted
    from coterie.agents.events.agent_events import ToolEnded as ToolEnded
    from coterie.agents.events.agent_events import ToolStarted as ToolStarted
    from coterie.agents.events.event_reader import MessageRecorded as MessageRecorded
    from coterie.agents.events.event_reader import SessionEvent as SessionEvent
    from coterie.agents.events.root_events import AgentChanged as AgentChanged
    from coterie.agents.events.root_events import ApprovalAsked as ApprovalAsked
    from coterie.agents.events.root_events import ApprovalDecided as ApprovalDecided
    from coterie.agents.loop.model.usage import Usage as Usage
    from coterie.agents.permissions.plan_approval import PlanPolicy as PlanPolicy
    from coterie.agents.permissions.types import AllowForSession as AllowForSession
    from coterie.agents.permissions.types import AllowOnce as AllowOnce
    from coterie.agents.permissions.types import Answer as Answer
    from coterie.agents.permissions.types import DenyCall as DenyCall
    from coterie.agents.permissions.types import Question as Question
    from coterie.agents.root_link.spawn_request import Spawned as Spawned
    from coterie.errors import AgentError as AgentError
    from coterie.errors import ConfigInvalid as ConfigInvalid
    from coterie.mailbox.contract import Receipt as Receipt
    from coterie.orchestrator.api.errors import RequestRefused as RequestRefused
    from coterie.orchestrator.api.errors import SessionError as SessionError
    from coterie.orchestrator.api.errors import SessionFailed as SessionFailed
    from coterie.orchestrator.api.errors import SessionOver as SessionOver
    from coterie.orchestrator.api.live_session import EventStream as EventStream
    from coterie.orchestrator.api.live_session import LiveSession as LiveSession
    from coterie.orchestrator.api.open_session import open_session as open_session
    from coterie.orchestrator.api.open_session import run_sync as run_sync
    from coterie.orchestrator.api.options import SessionOptions as SessionOptions
    from coterie.orchestrator.api.session_result import SessionResult as SessionResult
    from coterie.orchestrator.approvals.store import Approval as Approval
    from coterie.orchestrator.session.overview import AgentSummary as AgentSummary
    from coterie.orchestrator.teams.team_tables import TeamInvalid as TeamInvalid

__version__ = "0.1.0"

_MODULES: dict[str, tuple[str, ...]] = {
    "agents.events.agent_events": (
        "Event",
        "Finished",
        "ProgressSummarized",
        "RunStarted",
        "TextEmitted",
        "ToolEnded",
        "ToolStarted",
    ),
    "agents.events.event_reader": ("MessageRecorded", "SessionEvent"),
    "agents.events.root_events": ("AgentChanged", "ApprovalAsked", "ApprovalDecided"),
    "agents.loop.model.usage": ("Usage",),
    "agents.permissions.plan_approval": ("PlanPolicy",),
    "agents.permissions.types": ("AllowForSession", "AllowOnce", "Answer", "DenyCall", "Question"),
    "agents.root_link.spawn_request": ("Spawned",),
    "errors": ("AgentError", "ConfigInvalid"),
    "mailbox.contract": ("Receipt",),
    "orchestrator.api.errors": ("RequestRefused", "SessionError", "SessionFailed", "SessionOver"),
    "orchestrator.api.live_session": ("EventStream", "LiveSession"),
    "orchestrator.api.open_session": ("open_session", "run_sync"),
    "orchestrator.api.options": ("SessionOptions",),
    "orchestrator.api.session_result": ("SessionResult",),
    "orchestrator.approvals.store": ("Approval",),
    "orchestrator.session.overview": ("AgentSummary",),
    "orchestrator.teams.team_tables": ("TeamInvalid",),
}
_OFFERED = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
"""Public name -> module that defines it."""
_RENAMED = {
    "AgentGlance": "AgentSummary",
    "ForSession": "AllowForSession",
    "Observed": "SessionEvent",
    "Once": "AllowOnce",
    "Progress": "ProgressSummarized",
    "Refusal": "DenyCall",
    "Result": "SessionResult",
    "Started": "RunStarted",
    "Text": "TextEmitted",
}
"""Old public name -> the name that replaced it."""

if not TYPE_CHECKING:  # else a name that is not offered would have any type

    def __getattr__(name: str) -> Any:
        if name in _RENAMED:
            new = _RENAMED[name]
            warn(f"{__name__}.{name} is now {__name__}.{new}", DeprecationWarning, stacklevel=2)
            name = new
        if name not in _OFFERED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_OFFERED])
