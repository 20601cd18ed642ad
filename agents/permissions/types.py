"""Types for permissions: modes, verdicts on tool calls, prompts for the user and the answers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import attrs

if TYPE_CHECKING:
    from coterie.agents.permissions.rules import Rule


Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)


@attrs.frozen(kw_only=True)
class Vote:
    """Vote of the user's hooks on a tool call. It never denies a call, and never overrides a rule, limit or mode that
    denies.
    """

    wants: Literal["allow", "ask"]
    """"allow": skip the prompt where only the mode would ask. "ask": prompt even where rules or mode allow the call."""
    reason: str = ""


@attrs.frozen(kw_only=True)
class Question:
    """Prompt that asks the user about a tool call before the call runs."""

    tool: str
    subject: str
    """Command, paths or web address of the call; empty for other calls."""
    details: Mapping[str, str] = attrs.field(factory=dict)
    """Other arguments of the call that differ from their defaults, by name."""
    reason: str
    """Reason why the user is asked."""
    rules: tuple[str, ...]
    """Texts of the rules granted if the user allows such calls for the session; empty if only this call can be."""
    remedy: str
    """Ways to allow such calls beforehand, as a phrase such as "the rule Bash(make:*) or the mode acceptEdits"."""
    agent: str = ""
    """Name of the agent that makes the call; set by the root, the main process of the session."""

    def unanswered(self) -> str:
        """Return the reason of the denial, as a text for the model, for a run without a user who could answer."""
        return (
            f"{self.tool} needs the user's permission here, because {self.reason}, and there is no user to ask. "
            f"The user could allow it with {self.remedy}."
        )


@attrs.frozen(kw_only=True)
class Allowed:
    """Verdict on a tool call: the call may run."""

    by: str | None = None
    """Rules, hook, user or sandbox setting that allow the call; None if the mode or the kind of tool allows it."""


@attrs.frozen(kw_only=True)
class Denied:
    """Verdict on a tool call: the call may not run."""

    by: str
    """Rule, limit, mode, hook, protected path or user that denies the call."""
    reason: str
    """Reason of the denial, as a text for the model."""


@attrs.frozen(kw_only=True)
class NeedsPrompt:
    """Verdict on a tool call: the call may run only if the user allows it at a prompt."""

    by: str
    """Rule, mode or hook because of which the user is asked."""
    question: Question
    rules: "tuple[Rule, ...]"
    """Rules that are granted for the rest of the session if the answer is `AllowForSession`."""


Verdict = Allowed | Denied | NeedsPrompt


@attrs.frozen
class AllowOnce:
    """Answer of the user to a prompt: allow this call only."""


@attrs.frozen
class AllowForSession:
    """Answer of the user to a prompt: for this session, allow all calls that match the rules of the question."""


@attrs.frozen
class DenyCall:
    """Answer of the user to a prompt: deny this call."""

    reason: str = ""
    """Text for the model: a reason, or what to do instead; may be empty."""


Answer = AllowOnce | AllowForSession | DenyCall


class UserPrompter(Protocol):
    """Service that asks the user for permissions."""

    async def ask(self, question: Question) -> Answer:
        """Show *question*, and wait for its answer without a limit. An agent asks one at a time, and may cancel it."""
