"""Which hooks an event concerns, and in which order."""

import re
from collections.abc import Iterable

from coterie.agents.hooks.hook import Hook, HookEvent

ALL = ("", "*")
_NAMES = re.compile(r"[\w|]+")
ALIASES = {"Agent": ("Task",)}
"""Other names that people know a tool by."""


def check_matcher(matcher: str) -> str | None:
    """Why *matcher* is none; None if it is one."""
    if matcher in ALL or _NAMES.fullmatch(matcher):
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
    if matcher in ALL:
        return True
    names = (subject, *ALIASES.get(subject, ()))
    if _NAMES.fullmatch(matcher):
        return not set(matcher.split("|")).isdisjoint(names)
    return any(re.search(matcher, name) for name in names)


def concerned(hooks: Iterable[Hook], event: HookEvent, subject: str) -> list[Hook]:
    """The *hooks* for this event, in their order; of several with the same command, the first."""
    by_command: dict[str, Hook] = {}
    for hook in hooks:
        if hook.event == event and matches(hook.matcher, subject):
            by_command.setdefault(hook.command, hook)
    return list(by_command.values())
