"""Event base class, and the events of an agent's run and its tool calls."""

from typing import Literal, Self

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. A reader passes over kinds and members that it does not know."""


class RunStarted(Event, tag="started", frozen=True):
    """A run of the agent begins, its first or, after a resume, a later one."""

    session: str
    incarnation: int
    model: str
    permission_mode: str
    project: str
    tools: list[str]
    definition: str | None = None
    sandbox: str | None = None
    """What holds its commands; None if nothing does."""
    color: str | None = None
    """In which a terminal shows its name, as `#rrggbb`; None for no particular one."""


class TextEmitted(Event, tag="text", frozen=True):
    """The model is saying this: a part of a reply that is not whole yet. A retry says it again."""

    turn: int
    text: str


class Retrying(Event, tag="retrying", frozen=True):
    """A model call failed and will be made again."""

    error: str
    seconds: float
    """How long it waits first."""


class ToolStarted(Event, tag="tool_started", frozen=True):
    """A call begins; its input stands in the transcript."""

    id: str
    name: str


class ToolEnded(Event, tag="tool_ended", frozen=True):
    """A call has its result, which is in the transcript once all calls of the turn are done."""

    id: str
    name: str
    is_error: bool
    seconds: float
    characters: int
    reason: str | None = None
    """Of an error, its first line."""


class PermissionDecided(Event, tag="decided", frozen=True):
    """A call was allowed or denied by something other than the mode."""

    tool: str
    verdict: str
    by: str
    reason: str


class HookRan(Event, tag="hook_ran", frozen=True):
    """A command of the user's ran because something happened, and this is what it said to it."""

    event: str
    command: str
    source: str
    """The file it stands in."""
    exit_code: int | None
    """None if it could not be started, or took too long."""
    seconds: float
    decision: Literal["none", "allow", "ask", "block", "stop", "failed"]
    """failed: the command itself went wrong, and nothing follows from it."""
    reason: str = ""
    message: str = ""
    """What it has to say to the user."""
    tool: str | None = None
    tool_use_id: str | None = None
    changed_input: str | None = None
    """What the call is made with instead, as JSON; its beginning."""


class ProgressSummarized(Event, tag="progress", frozen=True):
    """What the agent is at, in a few words of a small model."""

    text: str
    turn: int
    """How far it was then."""
    seconds: float
    cost_usd: str


class Noticed(Event, tag="noticed", frozen=True):
    """Something in the user's files was passed over or looks wrong."""

    source: str
    reason: str

    @classmethod
    def untrusted_mail(cls, mailbox: str, detail: str) -> Self:
        """Report a message that was not signed by its sender."""
        return cls(source=f"the mailbox of {mailbox}", reason=f"a message is not believed: {detail}")


class Finished(Event, tag="finished", frozen=True):
    """The run has ended."""

    reason: str
    result: str
    """The text of the last reply."""
    turns: int
    usage: dict[str, int]
    cost_usd: str
    """Exact, as a decimal number."""
    error: str | None = None
    is_unreachable: bool = False
    """Whether the error is that no model could be asked."""
