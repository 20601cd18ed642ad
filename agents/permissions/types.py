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
    """What a hook wants of a call. It denies none by this, and opens none that a rule, a limit or a mode denies."""

    wants: Literal["allow", "ask"]
    """allow: where the mode alone would ask the user, there is no need to. ask: the user is asked in any case."""
    reason: str = ""


@attrs.frozen(kw_only=True)
class Question:
    """What the user is asked before a call is made."""

    tool: str
    subject: str
    """The command, the paths, or the address; otherwise nothing."""
    details: Mapping[str, str] = attrs.field(factory=dict)
    """The other arguments of the call that are not as usual, by name."""
    reason: str
    """Why the user is asked."""
    rules: tuple[str, ...]
    """The rules that an answer for the whole session would add, as text; empty if it can only be allowed once."""
    remedy: str
    """What the user can do to allow such calls beforehand, as in "allow it with ..."."""
    agent: str = ""
    """Who wants to make the call; filled in by the root."""

    def unanswered(self) -> str:
        """The denial, in words for the model, where nobody can be asked."""
        return (
            f"{self.tool} needs the user's permission here, because {self.reason}, and nobody can be asked. "
            f"The user could allow it with {self.remedy}."
        )


@attrs.frozen(kw_only=True)
class Allowed:
    """The call may be made."""

    by: str | None = None
    """The rules that allow it, or who; None if the mode does."""


@attrs.frozen(kw_only=True)
class Denied:
    """The call may not be made."""

    by: str
    """The rule, limit or mode that denies it, or who."""
    reason: str
    """In words for the model."""


@attrs.frozen(kw_only=True)
class NeedsPrompt:
    """The call may be made if the user says so."""

    by: str
    """The rule or mode that asks."""
    question: Question
    rules: "tuple[Rule, ...]"
    """The rules that `AllowForSession` grants: those of the question."""


Verdict = Allowed | Denied | NeedsPrompt


@attrs.frozen
class AllowOnce:
    """Yes, this call."""


@attrs.frozen
class AllowForSession:
    """Yes, and whatever else the question's rules mean."""


@attrs.frozen
class DenyCall:
    """No."""

    reason: str = ""
    """What the model should know or do instead."""


Answer = AllowOnce | AllowForSession | DenyCall


class UserPrompter(Protocol):
    """Somebody who can be asked."""

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer, as long as it takes. Never called twice at the same time; may be cancelled."""
        ...
