"""Event base class, and the events of an agent's run and its tool calls."""

from typing import Literal, Self

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. A reader ignores kinds and members that it does not know."""


class RunStarted(Event, tag="started", frozen=True):
    """A run of the agent has started: the first run, or a later run after a resume."""

    session: str
    incarnation: int
    model: str
    permission_mode: str
    project: str
    tools: list[str]
    definition: str | None = None
    sandbox: str | None = None
    """Backend of the sandbox around commands; None without a sandbox."""
    color: str | None = None
    """Color of the agent's name on a terminal, as `#rrggbb`; None for no particular color."""


class TextEmitted(Event, tag="text", frozen=True):
    """Text of the model, part of an unfinished reply. A retry emits the text again."""

    turn: int
    text: str


class Retrying(Event, tag="retrying", frozen=True):
    """A model call failed and will be retried."""

    error: str
    seconds: float
    """Seconds until the retry."""


class ToolStarted(Event, tag="tool_started", frozen=True):
    """A tool call has started; its input is in the transcript."""

    id: str
    name: str


class ToolEnded(Event, tag="tool_ended", frozen=True):
    """A tool call has its result, which is in the transcript after all calls of the turn have ended."""

    id: str
    name: str
    is_error: bool
    seconds: float
    characters: int
    reason: str | None = None
    """First line of an error; None for a success."""


class PermissionDecided(Event, tag="decided", frozen=True):
    """A tool call was allowed or denied by something other than the mode."""

    tool: str
    verdict: str
    by: str
    reason: str


class HookRan(Event, tag="hook_ran", frozen=True):
    """A hook command of the user ran at an event; the members have its result."""

    event: str
    command: str
    source: str
    """File that defines the hook."""
    exit_code: int | None
    """None if the command could not be started or timed out."""
    seconds: float
    decision: Literal["none", "allow", "ask", "block", "stop", "failed"]
    """Effect of the hook; "failed" means that the command itself failed and has no effect."""
    reason: str = ""
    message: str = ""
    """Message of the hook to the user."""
    tool: str | None = None
    tool_use_id: str | None = None
    changed_input: str | None = None
    """Beginning of the changed input of the call, as JSON; None if the input is unchanged."""


class ProgressSummarized(Event, tag="progress", frozen=True):
    """Current activity of the agent, summarized by a small model."""

    text: str
    turn: int
    """Turn of the agent at the time of the summary."""
    seconds: float
    cost_usd: str


class Noticed(Event, tag="noticed", frozen=True):
    """Something in the user's files was ignored or looks wrong."""

    source: str
    reason: str

    @classmethod
    def untrusted_mail(cls, mailbox: str, detail: str) -> Self:
        """Return the event for a message without a valid signature of its sender."""
        return cls(source=f"the mailbox of {mailbox}", reason=f"a message is not trusted: {detail}")


class Finished(Event, tag="finished", frozen=True):
    """The run has ended."""

    reason: str
    result: str
    """Text of the last reply."""
    turns: int
    usage: dict[str, int]
    cost_usd: str
    """Exact dollars, as a decimal number."""
    error: str | None = None
    is_unreachable: bool = False
    """True if the run failed because no model could be reached."""
