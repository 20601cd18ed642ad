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
"""Events of an agent that has finished its work; the role of the agent selects one of them."""

DEFAULT_TIMEOUT = 60.0
LONGEST_TIMEOUT = 600.0
"""Maximum timeout in seconds; shorter than the silence after which an agent counts as stalled."""


@attrs.frozen(kw_only=True)
class Hook:
    """Command that runs at one event if its matcher matches."""

    event: HookEvent
    command: str
    """Command line for a shell."""
    matcher: str = ""
    """Pattern of tools, triggers or agent types; see `matches`."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds after which the command is killed."""
    source: str
    """File that defines the hook."""


def content_of(hooks: Iterable[Hook]) -> bytes:
    """Return bytes that identify the behavior of *hooks*; the source file does not affect them."""
    return json.dumps([[hook.event, hook.matcher, hook.command, hook.timeout] for hook in hooks]).encode()


MATCH_ALL = ("", "*")
_NAMES = re.compile(r"[\w|]+")
ALIASES = {"Agent": ("Task",)}
"""Other names of a tool that users know."""


def check_matcher(matcher: str) -> str | None:
    """Return the reason why *matcher* is invalid; None if it is valid."""
    if matcher in MATCH_ALL or _NAMES.fullmatch(matcher):
        return None
    try:
        re.compile(matcher)
    except (re.error, RecursionError) as exc:
        return f"{matcher!r} is not a regular expression: {exc}"
    return None


def matches(matcher: str, subject: str) -> bool:
    """True if *matcher* matches *subject*, such as the name of a tool.

    An empty matcher and `*` match everything. A word, or several words separated by `|`, are names. Anything else is a
    regular expression that may match anywhere in the name.
    """
    if matcher in MATCH_ALL:
        return True
    names = (subject, *ALIASES.get(subject, ()))
    if _NAMES.fullmatch(matcher):
        return not set(matcher.split("|")).isdisjoint(names)
    return any(re.search(matcher, name) for name in names)


def matching_hooks(hooks: Iterable[Hook], event: HookEvent, subject: str) -> list[Hook]:
    """Return the *hooks* that match this event, in order; of several with the same command, the first."""
    by_command: dict[str, Hook] = {}
    for hook in hooks:
        if hook.event == event and matches(hook.matcher, subject):
            by_command.setdefault(hook.command, hook)
    return list(by_command.values())
