"""Hook: a command of the user that runs at an event of an agent; its matcher; the parser of hooks in files."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import attrs

from coterie.source_positions import JsonKeyPath
from coterie.suggestions import closest_match, did_you_mean

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
"""Events at the end of an agent's work: `Stop` for the lead (first agent), the others for subagents and teammates."""

DEFAULT_TIMEOUT = 60.0
LONGEST_TIMEOUT = 600.0
"""Maximum timeout of a hook in seconds; less than the default time after which a silent agent counts as stalled."""
MATCH_ALL = ("", "*")

_NAMES = re.compile(r"[\w|]+")

ALIASES = {"Agent": ("Task",)}
"""Further names that a matcher may use for a tool, because users know the tool by these names."""
ELSEWHERE = frozenset(
    {
        *("UserPromptSubmit", "Notification", "PermissionRequest", "PermissionDenied", "PostToolUseFailure"),
        *("SubagentStart", "StopFailure", "TaskCreated", "InstructionsLoaded", "ConfigChange", "CwdChanged"),
        *("FileChanged", "WorktreeCreate", "WorktreeRemove", "Elicitation", "ElicitationResult", "Setup"),
    }
)
"""Events that only other products have. Their hooks do not run here, but are no errors."""
IGNORED_KEYS = frozenset({"statusMessage", "description"})
"""Keys of a hook in a file that are accepted, but have no effect."""
CONDITION = "if"


@attrs.frozen(kw_only=True)
class Hook:
    """Command of the user that runs at one event of an agent if the matcher matches."""

    event: HookEvent
    command: str
    """Command line that a shell runs."""
    matcher: str = ""
    """Pattern that the subject of the event, such as a tool, trigger or agent type, must match; see `matches`."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds after which the command is killed."""
    source: str
    """Path of the file that defines the hook."""


def content_of(hooks: Iterable[Hook]) -> bytes:
    """Return bytes equal only for equal events, matchers, commands and timeouts, to recognise approved hooks."""
    return json.dumps([[hook.event, hook.matcher, hook.command, hook.timeout] for hook in hooks]).encode()


def check_matcher(matcher: str) -> str | None:
    """Return the reason why *matcher* is not a valid pattern, for an error line; None if it is valid."""
    if matcher in MATCH_ALL or _NAMES.fullmatch(matcher):
        return None
    try:
        re.compile(matcher)
    except (re.error, RecursionError) as exc:
        return f"{matcher!r} is not a regular expression: {exc}"
    return None


def matches(matcher: str, subject: str) -> bool:
    """True if *matcher*, the pattern of a hook, matches *subject*, such as the name of a tool.

    An empty matcher and `*` match everything. `Bash` and `Edit|Write` are exact names. Anything else is a regular
    expression that may match anywhere in *subject*.
    """
    if matcher in MATCH_ALL:
        return True
    names = (subject, *ALIASES.get(subject, ()))
    if _NAMES.fullmatch(matcher):
        return not set(matcher.split("|")).isdisjoint(names)
    return any(re.search(matcher, name) for name in names)


def matching_hooks(hooks: Iterable[Hook], event: HookEvent, subject: str) -> list[Hook]:
    """Return the *hooks* for *event* that match *subject*, in order; of several with the same command, the first."""
    by_command: dict[str, Hook] = {}
    for hook in hooks:
        if hook.event == event and matches(hook.matcher, subject):
            by_command.setdefault(hook.command, hook)
    return list(by_command.values())


@attrs.frozen
class HookProblem:
    """Problem in the hooks of a file: the entry at *place* has no effect, or the default timeout is used."""

    place: JsonKeyPath
    reason: str


@attrs.define(eq=False)
class HookParser:
    """Parser of the hooks of one file, which collects the problems."""

    source: str
    problems: list[HookProblem] = attrs.field(factory=list, init=False)
    elsewhere: list[str] = attrs.field(factory=list, init=False)
    """Events in the file that only other products have, so that their hooks do not run."""

    def parse(self, value: object) -> tuple[Hook, ...]:
        """Return the hooks in *value*, a mapping from event to list of hooks. Adds to `problems`; never raises."""
        if not isinstance(value, Mapping):
            self._add_problem((), f"hooks must be a table of events, not {_type_name(value)}")
            return ()
        return tuple(hook for name, groups in value.items() for hook in self._event(str(name), groups))

    def _event(self, name: str, groups: object) -> Iterator[Hook]:
        event = next((event for event in HOOK_EVENTS if event == name), None)
        if name in ELSEWHERE:
            self.elsewhere.append(name)
        elif event is None:
            near = closest_match(name, HOOK_EVENTS, 1)
            hint = f"did you mean {near[0]}?" if near else f"the events are {', '.join(HOOK_EVENTS)}"
            self._add_problem((name,), f"unknown event {name!r}; {hint}")
        elif not isinstance(groups, list):
            self._add_problem((name,), f"{name} must be a list, not {_type_name(groups)}")
        else:
            for at, group in enumerate(groups):
                yield from self._group(event, (name, at), group)

    def _group(self, event: HookEvent, place: JsonKeyPath, group: object) -> Iterator[Hook]:
        if not isinstance(group, Mapping):
            reason = f"a group of {event} must be a table with a matcher and hooks, not {_type_name(group)}"
            self._add_problem(place, reason)
            return
        matcher = group.get("matcher", "")
        problem = check_matcher(matcher) if isinstance(matcher, str) else f"must be a text, not {_type_name(matcher)}"
        if problem is not None:
            # A hook that runs in unintended cases would be worse than a hook that does not run.
            self._add_problem((*place, "matcher"), f"matcher {problem}; the hooks with it do not run")
            return
        if "hooks" not in group:
            # A group of one command needs no list.
            yield from self._command(event, matcher, place, {k: v for k, v in group.items() if k != "matcher"})
            return
        self._check_keys(group, ("matcher", "hooks"), place)
        commands = group["hooks"]
        if not isinstance(commands, list):
            self._add_problem((*place, "hooks"), f"hooks must be a list, not {_type_name(commands)}")
            return
        for at, command in enumerate(commands):
            yield from self._command(event, matcher, (*place, "hooks", at), command)

    def _command(self, event: HookEvent, matcher: str, place: JsonKeyPath, given: object) -> Iterator[Hook]:
        if not isinstance(given, Mapping):
            self._add_problem(place, f"a hook of {event} must be a table with a command, not {_type_name(given)}")
            return
        if (type_ := given.get("type", "command")) != "command":
            self._add_problem((*place, "type"), f"a hook of the type {type_!r} cannot run; the only type is 'command'")
            return
        command = given.get("command")
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            self._add_problem((*place, "command"), f"a hook of {event} needs a command, a text for a shell")
            return
        if CONDITION in given:
            # As with a matcher: the hook would run in unintended cases.
            reason = f"{CONDITION!r} is not supported, so this hook does not run; use a matcher"
            self._add_problem((*place, CONDITION), reason)
            return
        self._check_keys(given, ("type", "command", "timeout"), place)
        timeout = self._timeout(given.get("timeout"), (*place, "timeout"))
        yield Hook(event=event, command=command, matcher=matcher, timeout=timeout, source=self.source)

    def _timeout(self, value: Any, place: JsonKeyPath) -> float:
        if value is None:
            return DEFAULT_TIMEOUT
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if 0 < seconds <= LONGEST_TIMEOUT:
            return seconds
        reason = f"timeout must be seconds above 0 and at most {LONGEST_TIMEOUT:g}; {DEFAULT_TIMEOUT:g} is used"
        self._add_problem(place, reason)
        return DEFAULT_TIMEOUT

    def _check_keys(self, given: Mapping[Any, Any], known: tuple[str, ...], place: JsonKeyPath) -> None:
        for key in map(str, given):
            if key not in known and key not in IGNORED_KEYS:
                self._add_problem((*place, key), f"unknown key {key!r} is ignored; {did_you_mean(key, known)}")

    def _add_problem(self, place: JsonKeyPath, reason: str) -> None:
        self.problems.append(HookProblem(place, reason))


def _type_name(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list) else repr(value)
