"""Parser of hooks in settings and definition files."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from coterie.agents.hooks.hook import DEFAULT_TIMEOUT, HOOK_EVENTS, LONGEST_TIMEOUT, Hook, HookEvent, check_matcher
from coterie.source_positions import JsonKeyPath
from coterie.suggestions import closest_match, did_you_mean

ELSEWHERE = frozenset(
    {
        *("UserPromptSubmit", "Notification", "PermissionRequest", "PermissionDenied", "PostToolUseFailure"),
        *("SubagentStart", "StopFailure", "TaskCreated", "InstructionsLoaded", "ConfigChange", "CwdChanged"),
        *("FileChanged", "WorktreeCreate", "WorktreeRemove", "Elicitation", "ElicitationResult", "Setup"),
    }
)
"""Events of other products that do not exist here."""
GROUP_KEYS = ("matcher", "hooks")
COMMAND_KEYS = ("type", "command", "timeout")
IGNORED_KEYS = frozenset({"statusMessage", "description"})
"""Keys that do not affect the behavior of a hook."""
CONDITION = "if"


@attrs.frozen
class HookProblem:
    """Problem in a hook definition, which therefore has no effect."""

    place: JsonKeyPath
    reason: str


@attrs.define(eq=False)
class HookParser:
    """Parses the hooks of one file."""

    source: str
    problems: list[HookProblem] = attrs.field(factory=list, init=False)
    elsewhere: list[str] = attrs.field(factory=list, init=False)
    """Valid events of other products in the file, which do not exist here."""

    def parse(self, value: object) -> tuple[Hook, ...]:
        """Parse *value*, lists of groups by event, and return the hooks in the order of the file. Never raises."""
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
            self._add_problem(
                place, f"a group of {event} must be a table with a matcher and hooks, not {_type_name(group)}"
            )
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
        self._check_keys(group, GROUP_KEYS, place)
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
            self._add_problem(
                (*place, CONDITION), f"{CONDITION!r} is not supported, so this hook does not run; use a matcher"
            )
            return
        self._check_keys(given, COMMAND_KEYS, place)
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
