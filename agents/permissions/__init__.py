"""What an agent may do: decided outside the prompt, call by call, before a tool runs."""

from coterie.agents.permissions.authority import Answer, Asker, Authority, Decision, ForSession, Once, Refusal
from coterie.agents.permissions.decision import (
    MODES,
    Allowed,
    Asks,
    Denied,
    Mode,
    Permissions,
    Question,
    RoleLimit,
    Verdict,
    Vote,
)
from coterie.agents.permissions.rules import Rule

__all__ = [
    "MODES",
    "Allowed",
    "Answer",
    "Asker",
    "Asks",
    "Authority",
    "Decision",
    "Denied",
    "ForSession",
    "Mode",
    "Once",
    "Permissions",
    "Question",
    "Refusal",
    "RoleLimit",
    "Rule",
    "Verdict",
    "Vote",
]
