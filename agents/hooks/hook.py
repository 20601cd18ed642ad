"""What a hook is: a command of the user's, for one event."""

import json
from collections.abc import Iterable
from typing import Literal, get_args

import attrs

HookEvent = Literal[
    "SessionStart",
    "SessionEnd",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "TeammateIdle",
    "TaskCompleted",
]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
ENDS: frozenset[HookEvent] = frozenset({"Stop", "SubagentStop", "TeammateIdle"})
"""An agent has nothing more to do; which of them it is depends on what it is there for."""

DEFAULT_TIMEOUT = 60.0
LONGEST_TIMEOUT = 600.0
"""Less than what an agent may be silent for before it counts as stalled."""


@attrs.frozen(kw_only=True)
class Hook:
    """A command that runs at one event, where its matcher fits."""

    event: HookEvent
    command: str
    """For a shell."""
    matcher: str = ""
    """Which tools, triggers or kinds it is for; see `matching`."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds after which it is killed."""
    source: str
    """The file it stands in."""


def content_of(hooks: Iterable[Hook]) -> bytes:
    """All that *hooks* would do, as bytes that differ if any of it does; where they stand is no part of it."""
    return json.dumps([[hook.event, hook.matcher, hook.command, hook.timeout] for hook in hooks]).encode()
