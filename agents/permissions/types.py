"""Permission types: modes, verdicts, prompts for the user and their answers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import attrs

if TYPE_CHECKING:
    from coterie.agents.permissions.rules import Rule


Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)


@attrs.frozen(kw_only=True)
class Vote:
    """Vote of hooks on a call. A vote never denies a call, and never overrides a rule, limit or mode that denies."""

    wants: Literal["allow", "ask"]
    """"allow": skip the prompt where only the mode would ask. "ask": prompt the user in any case."""
    reason: str = ""


@attrs.frozen(kw_only=True)
class Question:
    """Prompt for the user before a call runs."""

    tool: str
    subject: str
    """Command, paths or address of the call; empty for other calls."""
    details: Mapping[str, str] = attrs.field(factory=dict)
    """Other arguments of the call that differ from their defaults, by name."""
    reason: str
    """Reason of the prompt."""
    rules: tuple[str, ...]
    """Rules, as text, that an approval for the session adds; empty if the call can only be allowed once."""
    remedy: str
    """Ways to allow such calls beforehand, as in "allow it with ..."."""
    agent: str = ""
    """Agent that makes the call; set by the root."""

    def unanswered(self) -> str:
        """Return the denial, as a text for the model, if there is no user to ask."""
        return (
            f"{self.tool} needs the user's permission here, because {self.reason}, and there is no user to ask. "
            f"The user could allow it with {self.remedy}."
        )


@attrs.frozen(kw_only=True)
class Allowed:
    """Verdict: the call may run."""

    by: str | None = None
    """Rules or hook that allow the call; None for the mode."""


@attrs.frozen(kw_only=True)
class Denied:
    """Verdict: the call may not run."""

    by: str
    """Rule, limit, mode or user that denies the call."""
    reason: str
    """Reason, as a text for the model."""


@attrs.frozen(kw_only=True)
class NeedsPrompt:
    """Verdict: the call may run if the user allows it."""

    by: str
    """Rule or mode that asks."""
    question: Question
    rules: "tuple[Rule, ...]"
    """Rules of the question, which `AllowForSession` grants."""


Verdict = Allowed | Denied | NeedsPrompt


@attrs.frozen
class AllowOnce:
    """Answer: allow this call."""


@attrs.frozen
class AllowForSession:
    """Answer: allow this call and all calls that match the rules of the question."""


@attrs.frozen
class DenyCall:
    """Answer: deny this call."""

    reason: str = ""
    """Text for the model: a reason, or what to do instead."""


Answer = AllowOnce | AllowForSession | DenyCall


class UserPrompter(Protocol):
    """Asks the user for permissions."""

    async def ask(self, question: Question) -> Answer:
        """Wait for the answer without a timeout. Not called concurrently; may be cancelled."""
