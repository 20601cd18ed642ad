"""Coterie runs a team of Claude agents as operating-system processes.

Importing this package imports nothing else; what it offers is loaded when it is first used. `docs/python.md` says what
there is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `_OFFERED` holds, for whoever checks types
    from coterie.agents.approvals.policy import PlanPolicy as PlanPolicy
    from coterie.agents.errors import AgentError as AgentError
    from coterie.agents.errors import ConfigInvalid as ConfigInvalid
    from coterie.agents.events import AgentChanged as AgentChanged
    from coterie.agents.events import ApprovalAsked as ApprovalAsked
    from coterie.agents.events import ApprovalDecided as ApprovalDecided
    from coterie.agents.events import Event as Event
    from coterie.agents.events import Finished as Finished
    from coterie.agents.events import Progress as Progress
    from coterie.agents.events import Started as Started
    from coterie.agents.events import Text as Text
    from coterie.agents.events import ToolEnded as ToolEnded
    from coterie.agents.events import ToolStarted as ToolStarted
    from coterie.agents.permissions import Answer as Answer
    from coterie.agents.permissions import ForSession as ForSession
    from coterie.agents.permissions import Once as Once
    from coterie.agents.permissions import Question as Question
    from coterie.agents.permissions import Refusal as Refusal
    from coterie.agents.spawning import Spawned as Spawned
    from coterie.agents.usage import Usage as Usage
    from coterie.mailbox.contract import Receipt as Receipt
    from coterie.orchestrator.api.errors import RequestRefused as RequestRefused
    from coterie.orchestrator.api.errors import SessionError as SessionError
    from coterie.orchestrator.api.errors import SessionFailed as SessionFailed
    from coterie.orchestrator.api.errors import SessionOver as SessionOver
    from coterie.orchestrator.api.opening import open_session as open_session
    from coterie.orchestrator.api.opening import run_sync as run_sync
    from coterie.orchestrator.api.result import Result as Result
    from coterie.orchestrator.api.session import LiveSession as LiveSession
    from coterie.orchestrator.api.stream import EventStream as EventStream
    from coterie.orchestrator.api.wish import SessionOptions as SessionOptions
    from coterie.orchestrator.approvals.record import Approval as Approval
    from coterie.orchestrator.events.observed import MessageRecorded as MessageRecorded
    from coterie.orchestrator.events.observed import Observed as Observed
    from coterie.orchestrator.overview import AgentGlance as AgentGlance
    from coterie.orchestrator.teams.flaws import TeamInvalid as TeamInvalid

__version__ = "0.1.0"

_MODULES: dict[str, tuple[str, ...]] = {
    "agents.approvals.policy": ("PlanPolicy",),
    "agents.errors": ("AgentError", "ConfigInvalid"),
    "agents.events": (
        *("AgentChanged", "ApprovalAsked", "ApprovalDecided", "Event", "Finished"),
        *("Progress", "Started", "Text", "ToolEnded", "ToolStarted"),
    ),
    "agents.permissions": ("Answer", "ForSession", "Once", "Question", "Refusal"),
    "agents.spawning": ("Spawned",),
    "agents.usage": ("Usage",),
    "mailbox.contract": ("Receipt",),
    "orchestrator.api.errors": ("RequestRefused", "SessionError", "SessionFailed", "SessionOver"),
    "orchestrator.api.opening": ("open_session", "run_sync"),
    "orchestrator.api.result": ("Result",),
    "orchestrator.api.session": ("LiveSession",),
    "orchestrator.api.stream": ("EventStream",),
    "orchestrator.api.wish": ("SessionOptions",),
    "orchestrator.approvals.record": ("Approval",),
    "orchestrator.events.observed": ("MessageRecorded", "Observed"),
    "orchestrator.overview": ("AgentGlance",),
    "orchestrator.teams.flaws": ("TeamInvalid",),
}
_OFFERED = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
"""Public name -> module that defines it."""

if not TYPE_CHECKING:  # else a name that is not offered would have any type

    def __getattr__(name: str) -> Any:
        if name not in _OFFERED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_OFFERED])
