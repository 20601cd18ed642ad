"""What an agent lets be seen: typed events, each one line in its own log.

An event says what is recorded nowhere else. Messages, and what each reply used, stand in the transcript already;
whoever reads a session puts the two together.
"""

from pathlib import Path
from typing import Literal, Self, get_args

import attrs
import msgspec

from coterie.clock import Clock
from coterie.files import Appender

VERSION = 1

Mechanism = Literal["time", "cache", "api", "size"]
"""How old tool results left the context: by time, by an edit of the cache, by the API, or because there were more
pictures and pages than a request may hold."""
Cause = Literal["model", "betas", "parameters", "tools", "system", "messages", "expired", "server"]
"""Why a cache was missed; server: nothing that we know of."""

AgentState = Literal[
    "starting", "running", "waiting", "idle", "plan_pending", "stopping", "done", "failed", "killed", "stalled"
]
"""waiting: for something that it names. stalled: alive, and nothing was heard of it for too long."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. A reader passes over kinds and members that it does not know."""


class Started(Event, tag="started", frozen=True):
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


class Text(Event, tag="text", frozen=True):
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


class Decided(Event, tag="decided", frozen=True):
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


class ResultsStored(Event, tag="results_stored", frozen=True):
    """Layer 1: results too long for the conversation are on disk, with their beginning left in place."""

    paths: list[str]
    characters_before: int
    characters_after: int


class ResultsCleared(Event, tag="results_cleared", frozen=True):
    """Layer 2: old tool results left the context."""

    mechanism: Mechanism
    results: int
    tokens_before: int
    tokens_after: int
    where: str
    """The file in which they can be read again."""


class NotesUpdated(Event, tag="notes_updated", frozen=True):
    """Layer 3: the session notes know what happened up to here."""

    path: str
    tokens: int
    """Of the notes."""
    edits: int
    trimmed: list[str]
    """Headings of sections that were over their limit."""
    seconds: float
    cost_usd: str


class Compacted(Event, tag="compacted", frozen=True):
    """Layers 3 and 4: a summary stands for the older part of the conversation."""

    trigger: str
    by: str
    """notes, summary, chunks, or rule."""
    tokens_before: int
    tokens_after: int
    left: int
    """Messages that left the context."""
    kept: int
    words: int
    """Messages of the human, and the task, all of which are still there word for word."""
    words_added: int
    """Those of them that the summary did not hold, and that were put beside it."""
    restored: list[str]
    """Files that the model has in view again."""
    dropped: list[str]
    """Paths, names and numbers of the last turns that are no longer in the context; the first of them."""
    dropped_count: int
    seconds: float
    cost_usd: str
    where: str
    """The file in which all that left can be read again."""
    skills: list[str] = []
    """Skills whose text the model has in view again."""
    passed_over: dict[str, str] = {}
    """Why a cheaper way was not taken, by way."""


class SkillLoaded(Event, tag="skill_loaded", frozen=True):
    """The model was shown the text of a skill."""

    name: str
    by: Literal["model", "user", "definition"]
    """Who wanted it: the agent, the user as `/name`, or the definition of the agent's kind."""
    path: str
    characters: int


class MemoryChanged(Event, tag="memory_changed", frozen=True):
    """A memory was written or removed; what it was before stands in the store's history."""

    path: str
    change: str
    """The id of the change, by which it can be shown and undone."""
    action: Literal["added", "changed", "removed"]
    by: Literal["agent", "extraction", "dream", "user"]


class Recalled(Event, tag="recalled", frozen=True):
    """Memories that may be of use for what the human said were looked for."""

    by: Literal["model", "local"]
    candidates: int
    chosen: list[str]
    left_out: dict[str, str]
    """Why not, by file; the first of them."""
    bytes: int
    """Of what is shown to the model."""
    seconds: float
    cost_usd: str


class MemoryExtracted(Event, tag="memory_extracted", frozen=True):
    """Layer 5: what is worth keeping of the last messages is in the memory, or there was nothing."""

    saved: list[str]
    turns: int
    seconds: float
    cost_usd: str
    skipped: str | None = None
    """Why no model was asked."""


class Dreamed(Event, tag="dreamed", frozen=True):
    """Layer 6: a dream is in another phase, or has ended."""

    state: Literal["starting", "updating", "completed", "failed", "killed"]
    change: str | None = None
    """The id of what it changed, by which it can be shown and undone."""
    applied: int = 0
    """Hunks that are in the memory."""
    waiting: int = 0
    """Hunks that wait for the user."""
    dropped: int = 0
    """Hunks whose file has changed meanwhile."""
    reason: str | None = None
    seconds: float = 0.0
    cost_usd: str = "0"


class Progress(Event, tag="progress", frozen=True):
    """What the agent is at, in a few words of a small model."""

    text: str
    turn: int
    """How far it was then."""
    seconds: float
    cost_usd: str


class ApprovalAsked(Event, tag="approval_asked", frozen=True):
    """Told by the root: somebody must say yes before an agent goes on. It waits, also over a crash."""

    id: str
    what: Literal["plan", "permission"]
    name: str
    """The agent that asks."""
    incarnation: int
    by: str
    """Who decides: lead, human, or rule."""
    subject: str
    """The first line of the plan, or the call."""


class ApprovalDecided(Event, tag="approval_decided", frozen=True):
    """Told by the root: an approval that was asked for is not open any more."""

    id: str
    name: str
    verdict: Literal["approved", "rejected", "withdrawn"]
    by: str
    """lead, human, rule; of one that was withdrawn, the agent itself."""
    feedback: str = ""


class AnswerRefused(Event, tag="answer_refused", frozen=True):
    """Told by the root: an answer to an approval that does not count, and changes nothing."""

    id: str
    by: str
    """Who gave it, or the file in which it stood."""
    reason: str


class BreakerTripped(Event, tag="breaker_tripped", frozen=True):
    """Summaries have failed too often: from here on the oldest messages leave by rule, and no model is asked."""

    failures: int
    reason: str


class CacheBroke(Event, tag="cache_broke", frozen=True):
    """The prompt cache gave less than before, and nobody had announced it."""

    cause: Cause
    detail: str
    read_before: int
    read_now: int


class WindowFilling(Event, tag="window_filling", frozen=True):
    """The context has grown over a threshold."""

    level: Literal["warn", "compact", "block"]
    tokens: int
    threshold: int


class LayerFailed(Event, tag="layer_failed", frozen=True):
    """A layer could not do its work; the agent goes on without it."""

    layer: str
    reason: str


class Noticed(Event, tag="noticed", frozen=True):
    """Something in the user's files was passed over or looks wrong."""

    source: str
    reason: str


class McpChanged(Event, tag="mcp_changed", frozen=True):
    """Told by the root: an MCP server is connected, could not be, or was lost."""

    server: str
    state: Literal["connected", "failed", "lost"]
    reason: str = ""
    owner: str | None = None
    """Which start of which agent it is for alone; None for the connection that all share."""
    pid: int | None = None


class Budgeted(Event, tag="budgeted", frozen=True):
    """Told by the root when it begins: what all agents of the session may spend together."""

    dollars: str | None
    """Exact, as a decimal number; None if there is no limit any more."""


class AgentChanged(Event, tag="agent_changed", frozen=True):
    """Told by the root: the process of an agent is in another state."""

    name: str
    incarnation: int
    state: AgentState
    what: str = ""
    """What it waits for, or why it has ended."""
    pid: int | None = None
    parent: str | None = None
    report: str | None = None
    """Of one that has ended: the id of the message that tells its parent what came of the task."""


class CleanedUp(Event, tag="cleaned_up", frozen=True):
    """Told by the janitor, in the log of a root that was killed: what was done about all that it left."""

    killed: int
    """Processes."""
    mended: list[str]
    """Records and files, and what was done about each."""
    failures: list[str]
    """What could not be ended or mended, and why."""
    is_taken_over: bool = False
    """A new root came first, and the rest is its."""


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


AnyEvent = (
    Started
    | Text
    | Retrying
    | ToolStarted
    | ToolEnded
    | Decided
    | HookRan
    | ResultsStored
    | ResultsCleared
    | NotesUpdated
    | Compacted
    | SkillLoaded
    | MemoryChanged
    | Recalled
    | MemoryExtracted
    | Dreamed
    | Progress
    | ApprovalAsked
    | ApprovalDecided
    | AnswerRefused
    | BreakerTripped
    | CacheBroke
    | WindowFilling
    | LayerFailed
    | Noticed
    | McpChanged
    | Budgeted
    | AgentChanged
    | CleanedUp
    | Finished
)
EVENTS: tuple[type[Event], ...] = get_args(AnyEvent)


@attrs.define(eq=False)
class EventLog:
    """The events of one process, in a file that only it writes."""

    agent: str
    _clock: Clock
    _appender: Appender

    @classmethod
    def open(cls, path: Path, agent: str, clock: Clock) -> "EventLog":
        """Open or create *path*; a line that a crash left unfinished is ended first. Raises `OSError`."""
        appender = Appender.open(path)
        if not _ends_with_newline(path):
            appender.append(b"\n")
        return cls(agent, clock, appender)

    def tell(self, event: Event) -> None:
        """Append *event* with the time and the agent's name, in one write. Raises `OSError`."""
        self._appender.append(write_event(event, self.agent, self._clock.now()))

    def close(self) -> None:
        """Close the file; telling afterwards is an error."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_event(event: Event, agent: str, at: float) -> bytes:
    """The line of *event*: version, time and agent first, then its own members."""
    start = msgspec.json.encode({"v": VERSION, "at": at, "agent": agent})
    return start[:-1] + b"," + msgspec.json.encode(event)[1:] + b"\n"


def silent(_event: Event) -> None:
    """What an agent tells that nobody watches."""


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"
