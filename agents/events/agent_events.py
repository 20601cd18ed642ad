"""Event base class, and the events of an agent's run and its tool calls."""

from typing import Literal, Self

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base class of all events, in event logs or created by readers. Readers ignore unknown kinds and members."""


class RunStarted(Event, tag="started", frozen=True):
    """A run of the agent has started: the first run, or a later run after a resume or restart."""

    session: str
    incarnation: int
    model: str
    permission_mode: str
    project: str
    tools: list[str]
    definition: str | None = None
    sandbox: str | None = None
    """Mechanism that isolates the agent's commands, such as `bubblewrap`; None without a sandbox."""
    color: str | None = None
    """Color of the agent's name on a terminal, as `#rrggbb`; None for no particular color."""


class TextEmitted(Event, tag="text", frozen=True):
    """A piece of the model's text, emitted while the reply arrives. A retry of the call emits the text again."""

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
    """A tool call has ended. Its result enters the transcript when all tool calls of the same reply have ended."""

    id: str
    name: str
    is_error: bool
    seconds: float
    characters: int
    reason: str | None = None
    """First line of the error message; None if the call succeeded."""


class PermissionDecided(Event, tag="decided", frozen=True):
    """A tool call was allowed or denied, or the user was asked. Calls that the permission mode allows have no event."""

    tool: str
    verdict: str
    by: str
    reason: str


class HookRan(Event, tag="hook_ran", frozen=True):
    """A hook (a command of the user that runs at certain events) has run; the members contain its result."""

    event: str
    command: str
    source: str
    """File that defines the hook."""
    exit_code: int | None
    """Exit code of the command; None if the command could not be started or timed out."""
    seconds: float
    decision: Literal["none", "allow", "ask", "block", "stop", "failed"]
    """Effect of the hook on the agent; "failed" means that the hook command itself failed, so it has no effect."""
    reason: str = ""
    message: str = ""
    """Message of the hook to the user."""
    tool: str | None = None
    tool_use_id: str | None = None
    changed_input: str | None = None
    """Beginning of the input that the hook set for the tool call, as JSON; None if the hook did not change it."""


class ProgressSummarized(Event, tag="progress", frozen=True):
    """One line about the current activity of the agent, written by a small model."""

    text: str
    turn: int
    """Number of the agent's next turn (model call) when the summary began."""
    seconds: float
    cost_usd: str


class Noticed(Event, tag="noticed", frozen=True):
    """Warning: something in the user's files, an MCP server, or a message to an agent was ignored or looks wrong."""

    source: str
    reason: str

    @classmethod
    def untrusted_mail(cls, mailbox: str, detail: str) -> Self:
        """Return the warning that the mailbox of agent *mailbox* received a message without a valid signature."""
        return cls(source=f"the mailbox of {mailbox}", reason=f"a message is not trusted: {detail}")


class Finished(Event, tag="finished", frozen=True):
    """The run of the agent has ended, with this result, token usage and cost."""

    reason: str
    result: str
    """Text of the model's last reply."""
    turns: int
    usage: dict[str, int]
    cost_usd: str
    """Exact cost of the turns in dollars, as a decimal number; without calls of helpers, such as session notes."""
    error: str | None = None
    is_unreachable: bool = False
    """True if the run failed because the model API could not be reached."""
