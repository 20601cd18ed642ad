"""Rendering of events as text for `coterie run`, `attach` and `logs`, and the importance of each event for the user."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec

from coterie.agents.events.agent_events import (
    Event,
    Finished,
    HookRan,
    Noticed,
    PermissionDecided,
    ProgressSummarized,
    Retrying,
    RunStarted,
    TextEmitted,
    ToolEnded,
    ToolStarted,
)
from coterie.agents.events.event_reader import (
    EpochBegan,
    LineUnreadable,
    MailDelivered,
    MessageRecorded,
    ReplyRecorded,
    SessionEvent,
)
from coterie.agents.events.layer_events import (
    BreakerTripped,
    CacheBroke,
    Compacted,
    Dreamed,
    LayerFailed,
    MemoryChanged,
    MemoryExtracted,
    NotesUpdated,
    Recalled,
    ResultsCleared,
    ResultsStored,
    SkillLoaded,
    WindowFilling,
)
from coterie.agents.events.root_events import (
    AgentChanged,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalRejected,
    Budgeted,
    CleanedUp,
    McpChanged,
)
from coterie.agents.loop.model.usage import Usage
from coterie.agents.permissions.plan_approval import HUMAN, LEAD, RULE
from coterie.orchestrator.cli.output import count_text, one_line, sanitize

SHOWN = 100
"""Maximum number of characters of a tool call's arguments, or of a reason, that are shown on one line."""
_LINES = {"user": 10, "thinks": 3, "result": 3}
"""Maximum number of lines shown of user text, of the model's thinking and of a tool result; replies are not cut."""

Level = Literal["problem", "notice", "info", "detail"]
"""Importance of an event. Each text view shows problems and notices, the terminal also info, only the log details."""


def event_level(event: Event) -> Level:  # noqa: PLR0911 - one case for each rule
    """Return the importance of *event*, by which a text view decides whether to show the event."""
    match event:
        case Retrying() | Noticed() | LayerFailed() | McpChanged(state="failed" | "lost"):
            return "problem"
        case AgentChanged(state="starting" | "stalled", what=what) if what:
            return "problem"  # a restart after a crash, or no progress
        case HookRan() if event.decision in ("block", "stop", "failed") or event.message:
            return "notice"
        case MemoryExtracted() if event.saved:
            return "notice"
        case Dreamed(state="completed" | "failed" | "killed"):
            return "notice"
        case ResultsCleared() | CacheBroke() | WindowFilling() | EpochBegan():
            return "info"
        case _:
            return "detail"


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as text, such as `Read(file_path='a.py')`, cut and without control characters."""
    listed = sanitize(", ".join(f"{key}={value!r}" for key, value in arguments.items()))
    return f"{one_line(name, SHOWN)}({listed if len(listed) <= SHOWN else listed[:SHOWN] + '...'})"


def outcome_text(event: ToolEnded) -> str:
    """Return outcome and duration of an ended tool call, such as `ok  0.3 s` or `failed: no such file  0.1 s`."""
    reason = f": {one_line(event.reason, SHOWN)}" if event.is_error and event.reason else ""
    return f"{'failed' if event.is_error else 'ok'}{reason}  {event.seconds:.1f} s"


def usage_text(usage: Usage, cost: Decimal) -> str:
    """Return the input tokens, cached percentage, output tokens and *cost* of one or more model calls as text."""
    share = 100 * usage.read / usage.prompt if usage.prompt else 0
    return f"{usage.prompt:,} tokens in, {share:.0f} % of them from cache, {usage.output:,} out, ${cost:.6f}"


def error_text(event: Finished) -> str | None:
    """Return the line `Error: ...` for the error that ended an agent's run; None if no error ended it."""
    return None if event.error is None else f"Error: {sanitize(event.error)}"


def finish_text(event: Finished) -> str:
    """Return the end reason, turns, tokens and cost of a finished run, such as `completed after 3 turns; ...`."""
    used = usage_text(msgspec.convert(event.usage, Usage), Decimal(event.cost_usd))
    return f"{event.reason} after {count_text(event.turns, 'turn')}; {used}"


def reply_text(message: MessageRecorded) -> str:
    """Return the text of *message*: its text blocks joined, without tool calls and thinking."""
    return "".join(block.get("text", "") for block in message.content if block.get("type") == "text")


def log_entries(observed: SessionEvent) -> Iterator[str]:
    """Yield the entries of `coterie logs` for an event; none for events that repeat another, such as `ToolStarted`."""
    match observed.event:
        case None:
            yield f"{observed.kind}: {one_line(msgspec.json.encode(observed.members).decode(), 5 * SHOWN)}"
        case TextEmitted() | ToolStarted():
            return
        case MessageRecorded(role=role, content=content):
            for block in content:
                yield _block(role, block)
        case event:
            yield event_text(event)


def _block(role: str, block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return f"says: {text}" if role == "assistant" else _beginning(role, text)
        case {"type": "thinking", "thinking": str(text)}:
            return _beginning("thinks", text)
        case {"type": "tool_use", "name": str(name), "input": dict(arguments)}:
            return f"calls {call_text(name, arguments)}"
        case {"type": "tool_result", "content": list(content)}:
            return _beginning("result", "\n".join(part.get("text", f"[{part.get('type')}]") for part in content))
        case _:
            return f"{role}: [{block.get('type')}]"


def _beginning(label: str, text: str) -> str:
    lines, limit = text.strip().splitlines(), _LINES.get(label, 10)
    more = len(lines) - limit
    shown = lines if more <= 0 else [*lines[:limit], f"... {count_text(more, 'more line')}"]
    return f"{label}: " + "\n".join(shown)


def event_text(event: Event) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each type of event
    """Return an event as a short description for the user; not escaped, so the caller must sanitize it."""
    match event:
        case RunStarted():
            again = f", start {event.incarnation}" if event.incarnation > 1 else ""
            sandbox = f", sandbox {event.sandbox}" if event.sandbox else ""
            return f"started: {event.model}, {event.permission_mode}, in {event.project}{sandbox}{again}"
        case Retrying():
            return f"model call failed: {event.error}; retrying in {event.seconds:.1f} s"
        case ToolEnded():
            return f"{event.name}  {outcome_text(event)}"
        case PermissionDecided():
            return f"{event.tool} {event.verdict} by {event.by}{_after_colon(event.reason)}"
        case HookRan():
            return _hook(event)
        case ReplyRecorded():
            used = usage_text(event.usage, Decimal(event.cost_usd))
            cut = "" if event.is_taken else "; incomplete, requested again"
            return f"turn {event.turn}: {used}, {event.seconds:.1f} s{cut}"
        case SkillLoaded():
            by = {"model": "", "user": ", requested by the user", "definition": ", named by its definition"}[event.by]
            return f"loaded skill {event.name}{by}: {event.characters:,} characters from {event.path}"
        case ProgressSummarized():
            return f"progress: {event.text}"
        case LayerFailed():
            return f"{event.layer} failed: {event.reason}"
        case AgentChanged():
            return f"{event.name} is {event.state.replace('_', ' ')}{_after_colon(event.what)}"
        case Budgeted():
            return "the session has no budget" if event.dollars is None else f"the budget is ${event.dollars}"
        case CleanedUp():
            return _cleanup(event)
        case ApprovalAsked():
            return f"{event.name} {approval_text(event)}"
        case ApprovalDecided() | ApprovalRejected():
            return approval_text(event)
        case Noticed():
            return f"{event.source}: {event.reason}"
        case McpChanged():
            owner = f" of {event.owner}" if event.owner else ""
            state = {"connected": "connected", "failed": "failed to connect", "lost": "disconnected"}[event.state]
            return f"MCP server {event.server}{owner} {state}{_after_colon(event.reason)}"
        case MailDelivered():
            return f"received {', '.join(event.ids)}"
        case EpochBegan():
            return f"conversation rewritten, {count_text(event.messages, 'message')} now"
        case LineUnreadable():
            return f"{event.file}:{event.line}: cannot be read: {event.reason}"
        case Finished():
            error = f"; {event.error}" if event.error else ""
            return f"finished: {finish_text(event)}{error}"
        case _:
            return _context_text(event) or _memory_text(event) or str(event)


def approval_text(event: ApprovalAsked | ApprovalDecided | ApprovalRejected) -> str:
    """Return an approval request, its decision, or an ignored answer to it as text, without the requesting agent."""
    decider = {HUMAN: "you", LEAD: "the lead", RULE: "the rule"}.get(event.by, event.by)
    match event:
        case ApprovalAsked():
            what = "permission" if event.what == "permission" else "approval of its plan"
            return f"asks {decider} for {what}, {event.id}: {event.subject}"
        case ApprovalDecided(verdict="withdrawn"):
            return f"{event.id} was withdrawn: {event.feedback}"
        case ApprovalDecided():
            return f"{event.id} was {event.verdict} by {decider}{_after_colon(event.feedback)}"
        case ApprovalRejected():
            return f"answer by {decider} to {event.id} was ignored: {event.reason}"


def _context_text(event: Event) -> str | None:  # noqa: PLR0911 - one case for each type of event
    """Return the text of an event about the size of the context, such as a compaction; None for any other event."""
    match event:
        case ResultsStored():
            sizes = f"{event.characters_before:,} -> {event.characters_after:,} characters"
            return f"{count_text(len(event.paths), 'long result')} stored on disk: {sizes}"
        case ResultsCleared():
            sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
            return f"{count_text(event.results, 'old result')} cleared by {event.mechanism}: {sizes}"
        case NotesUpdated():
            trimmed = f"; trimmed: {', '.join(event.trimmed)}" if event.trimmed else ""
            sizes = f"{event.tokens:,} tokens after {count_text(event.edits, 'edit')}"
            return f"session notes updated: {sizes}, {event.seconds:.1f} s, ${event.cost_usd}{trimmed}"
        case Compacted():
            return _compaction(event)
        case BreakerTripped():
            failed = f"{count_text(event.failures, 'summary', 'summaries')} failed in a row"
            return f"{failed}: {event.reason}; from now on the oldest messages are removed without a summary"
        case CacheBroke():
            sizes = f"{event.read_now:,} tokens read, {event.read_before:,} before"
            return f"cache miss, cause {event.cause}: {event.detail}; {sizes}"
        case WindowFilling():
            return f"context has {event.tokens:,} tokens, above {event.threshold:,} ({event.level})"
        case _:
            return None


def _compaction(event: Compacted) -> str:
    sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
    left = f"{count_text(event.left, 'message')} removed, {event.kept} kept"
    words = f"{count_text(event.words, 'user message')} kept verbatim"
    gone = f"; {count_text(event.dropped_count, 'name')} of the last turns lost" if event.dropped_count else ""
    skills = f"; skills restored: {', '.join(event.skills)}" if event.skills else ""
    why = "".join(f"; not by {way}: {reason}" for way, reason in event.passed_over.items())
    return f"compacted by {event.by} ({event.trigger}): {sizes}; {left}, {words}{skills}{gone}; ${event.cost_usd}{why}"


def _memory_text(event: Event) -> str | None:  # noqa: PLR0911 - one case for each type of event
    """Return the text of an event about memories, such as a dream (tidying by a model); None for any other event."""
    match event:
        case MemoryChanged():
            writer = {"agent": "the agent", "dream": "a dream", "user": "the user"}.get(event.by, event.by)
            return f"memory {event.path} was {event.action} by {writer}; change {event.change}"
        case Recalled():
            sizes = f"of {event.candidates:,} memories, {event.bytes:,} bytes"
            return f"recalled by {event.by}: {', '.join(event.chosen) or 'none'} {sizes}{_cost(event.cost_usd)}"
        case MemoryExtracted(skipped=str(reason)):
            return f"extraction skipped: {reason}"
        case MemoryExtracted():
            found = f"saved memories: {', '.join(event.saved)}" if event.saved else "no new memories"
            return f"{found}{_cost(event.cost_usd)}"
        case Dreamed(state="completed"):
            parts = f"{event.applied} applied, {event.waiting} waiting for you, {event.dropped} dropped"
            shown = f"; `coterie memory dream --list` shows {event.change}" if event.change is not None else ""
            return f"dream completed: {parts}{_cost(event.cost_usd)}{shown}"
        case Dreamed(state="failed" | "killed"):
            return f"dream {event.state}: {event.reason or 'no reason given'}"
        case Dreamed():
            return "dream started" if event.state == "starting" else "dream is writing"
        case _:
            return None


_HOOK_TEXTS = {
    "none": "did not object",
    "allow": "allowed it",
    "ask": "asked for a prompt",
    "block": "blocked it",
    "stop": "stopped the run",
    "failed": "failed",
}


def _hook(event: HookRan) -> str:
    about = f"{event.event} of {event.tool}" if event.tool else event.event
    reason = _after_colon(one_line(event.reason, 2 * SHOWN))
    changed = f"; changed the input to {one_line(event.changed_input, SHOWN)}" if event.changed_input else ""
    message = f"; message: {one_line(event.message, 2 * SHOWN)}" if event.message else ""
    command = f"hook {one_line(event.command, SHOWN)} for {about}"
    return f"{command} {_HOOK_TEXTS[event.decision]}{reason}{changed}{message}  {event.seconds:.1f} s"


def _cleanup(event: CleanedUp) -> str:
    killed = count_text(event.killed, "process", "processes")
    repaired = f", repaired {', '.join(event.mended)}" if event.mended else ""
    failed = f"; not repaired: {', '.join(event.failures)}" if event.failures else ""
    taken_over = "; a new root had started" if event.is_taken_over else ""
    return f"the root was killed; its cleanup daemon killed {killed}{repaired}{failed}{taken_over}"


def _after_colon(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _cost(dollars: str) -> str:
    return f", ${dollars}" if Decimal(dollars) else ""
