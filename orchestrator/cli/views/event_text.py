"""Text of events for people: log entries, tool calls, usage, errors."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

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
from coterie.orchestrator.cli.output import one_line, sanitize
from coterie.orchestrator.cli.views.layer_event_text import approval_text, context_text, memory_text

SHOWN = 100
"""Characters of a call's arguments, or of a reason, that one line shows."""
_LINES = {"user": 10, "thinks": 3, "result": 3}
"""Lines of a text that are shown; of what the agent says, all."""


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool call; what could act on a terminal stands escaped."""
    listed = sanitize(", ".join(f"{key}={value!r}" for key, value in arguments.items()))
    return f"{one_line(name, SHOWN)}({listed if len(listed) <= SHOWN else listed[:SHOWN] + '...'})"


def outcome_text(event: ToolEnded) -> str:
    """How a call ended, and how long it took."""
    reason = f": {one_line(event.reason, SHOWN)}" if event.is_error and event.reason else ""
    return f"{'failed' if event.is_error else 'ok'}{reason}  {event.seconds:.1f} s"


def usage_text(usage: Usage, cost: Decimal) -> str:
    """Tokens and dollars."""
    share = 100 * usage.read / usage.prompt if usage.prompt else 0
    return f"{usage.prompt:,} tokens in, {share:.0f} % of them from cache, {usage.output:,} out, ${cost:.6f}"


def error_text(event: Finished) -> str | None:
    """What went wrong at the end of a run."""
    return None if event.error is None else f"Error: {sanitize(event.error)}"


def finish_text(event: Finished) -> str:
    """How a run ended, and what it used."""
    turns = "1 turn" if event.turns == 1 else f"{event.turns} turns"
    used = usage_text(msgspec.convert(event.usage, Usage), Decimal(event.cost_usd))
    return f"{event.reason} after {turns}; {used}"


def is_problem(event: AgentChanged) -> bool:
    """Whether an agent does not get on by itself: it crashed and is started again, or nothing is heard of it."""
    return event.state in ("starting", "stalled") and bool(event.what)


def is_hook_notice(event: Event) -> bool:
    """Whether a hook has said something that the user should see."""
    return isinstance(event, HookRan) and (event.decision in ("block", "stop", "failed") or bool(event.message))


def reply_text(message: MessageRecorded) -> str:
    """The text of a message."""
    return "".join(block.get("text", "") for block in message.content if block.get("type") == "text")


def log_entries(observed: SessionEvent) -> Iterator[str]:
    """The entries of a log that an event is worth: none for what another event says too."""
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
    shown = lines if more <= 0 else [*lines[:limit], "... 1 more line" if more == 1 else f"... {more} more lines"]
    return f"{label}: " + "\n".join(shown)


def event_text(event: Event) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each kind of event
    """An event in one sentence."""
    match event:
        case RunStarted():
            again = f", start {event.incarnation}" if event.incarnation > 1 else ""
            held = f", commands held by {event.sandbox}" if event.sandbox else ""
            return f"started: {event.model}, {event.permission_mode}, in {event.project}{held}{again}"
        case Retrying():
            return f"the model call failed: {event.error}; it is made again in {event.seconds:.1f} s"
        case ToolEnded():
            return f"{event.name}  {outcome_text(event)}"
        case PermissionDecided():
            why = f": {event.reason}" if event.reason else ""
            return f"{event.tool} {event.verdict} by {event.by}{why}"
        case HookRan():
            return _hook(event)
        case ReplyRecorded():
            used = usage_text(event.usage, Decimal(event.cost_usd))
            cut = "" if event.is_taken else "; cut off, and asked for again"
            return f"turn {event.turn}: {used}, {event.seconds:.1f} s{cut}"
        case ResultsStored() | ResultsCleared() | NotesUpdated() | Compacted():
            return context_text(event)
        case BreakerTripped() | CacheBroke() | WindowFilling():
            return context_text(event)
        case SkillLoaded():
            wanted = {"model": "", "user": ", as the user wants", "definition": ", as its kind does"}[event.by]
            return f"loaded the skill {event.name}{wanted}: {event.characters:,} characters of {event.path}"
        case MemoryChanged() | Recalled() | MemoryExtracted() | Dreamed():
            return memory_text(event)
        case ProgressSummarized():
            return f"is at this: {event.text}"
        case LayerFailed():
            return f"{event.layer} could not do its work: {event.reason}"
        case AgentChanged():
            why = f": {event.what}" if event.what else ""
            return f"{event.name} is {event.state.replace('_', ' ')}{why}"
        case Budgeted():
            return "there is no limit on dollars" if event.dollars is None else f"the budget is ${event.dollars}"
        case CleanedUp():
            return _cleaning(event)
        case ApprovalAsked():
            return f"{event.name} {approval_text(event)}"
        case ApprovalDecided() | ApprovalRejected():
            return approval_text(event)
        case Noticed():
            return f"{event.source}: {event.reason}"
        case McpChanged():
            return _server(event)
        case MailDelivered():
            return f"mail of other agents came: {', '.join(event.ids)}"
        case EpochBegan():
            return f"the conversation was rewritten; it has {event.messages} messages now"
        case LineUnreadable():
            return f"{event.file}, line {event.line}, cannot be read: {event.reason}"
        case Finished():
            error = f"; {event.error}" if event.error else ""
            return f"finished: {finish_text(event)}{error}"
        case _:
            return str(event)


_HOOK_TEXTS = {
    "none": "had nothing to object",
    "allow": "allowed it",
    "ask": "wanted the user to be asked",
    "block": "objected",
    "stop": "ended the run",
    "failed": "failed",
}


def _hook(event: HookRan) -> str:
    about = f"{event.event} of {event.tool}" if event.tool else event.event
    reason = f": {one_line(event.reason, 2 * SHOWN)}" if event.reason else ""
    changed = f"; changed the input to {one_line(event.changed_input, SHOWN)}" if event.changed_input else ""
    message = f"; it says: {one_line(event.message, 2 * SHOWN)}" if event.message else ""
    command = f"the hook {one_line(event.command, SHOWN)} for {about}"
    return f"{command} {_HOOK_TEXTS[event.decision]}{reason}{changed}{message}  {event.seconds:.1f} s"


def _server(event: McpChanged) -> str:
    whose = f" of {event.owner}" if event.owner else ""
    state = {"connected": "is connected", "failed": "cannot be connected", "lost": "was lost"}[event.state]
    return f"the MCP server {event.server}{whose} {state}" + (f": {event.reason}" if event.reason else "")


def _cleaning(event: CleanedUp) -> str:
    ended = f"{event.killed:,} {'process' if event.killed == 1 else 'processes'}"
    done = f"the root was killed; its janitor has ended {ended}"
    mended = f", mended {', '.join(event.mended)}" if event.mended else ""
    failed = f"; not mended: {', '.join(event.failures)}" if event.failures else ""
    return done + mended + failed + ("; a new root came first" if event.is_taken_over else "")
