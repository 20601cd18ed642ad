"""Hooks: a user's command for one event, and its matcher."""

import json
import re
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
    """Which tools, triggers or kinds it is for; see `matches`."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds after which it is killed."""
    source: str
    """The file it stands in."""


def content_of(hooks: Iterable[Hook]) -> bytes:
    """All that *hooks* would do, as bytes that differ if any of it does; where they stand is no part of it."""
    return json.dumps([[hook.event, hook.matcher, hook.command, hook.timeout] for hook in hooks]).encode()


MATCH_ALL = ("", "*")
_NAMES = re.compile(r"[\w|]+")
ALIASES = {"Agent": ("Task",)}
"""Other names that people know a tool by."""


def check_matcher(matcher: str) -> str | None:
    """Why *matcher* is none; None if it is one."""
    if matcher in MATCH_ALL or _NAMES.fullmatch(matcher):
        return None
    try:
        re.compile(matcher)
    except (re.error, RecursionError) as exc:
        return f"{matcher!r} is no regular expression: {exc}"
    return None


def matches(matcher: str, subject: str) -> bool:
    """Whether *subject*, such as the name of a tool, is meant.

    Nothing and `*` mean all. A word, or several with `|` between them, are names. All else is a regular expression
    that is looked for anywhere in the name.
    """
    if matcher in MATCH_ALL:
        return True
    names = (subject, *ALIASES.get(subject, ()))
    if _NAMES.fullmatch(matcher):
        return not set(matcher.split("|")).isdisjoint(names)
    return any(re.search(matcher, name) for name in names)


def matching_hooks(hooks: Iterable[Hook], event: HookEvent, subject: str) -> list[Hook]:
    """The *hooks* for this event, in their order; of several with the same command, the first."""
    by_command: dict[str, Hook] = {}
    for hook in hooks:
        if hook.event == event and matches(hook.matcher, subject):
            by_command.setdefault(hook.command, hook)
    return list(by_command.values())
