"""Event patterns: the kind of an event and the members it must have."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs

from coterie.agents.events.event_log import EVENTS
from coterie.agents.events.event_reader import DERIVED_EVENTS, SessionEvent
from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.api_server.script.scripted_reply import TextPattern

KINDS: Mapping[str, type] = {str(kind.__struct_config__.tag): kind for kind in (*EVENTS, *DERIVED_EVENTS)}
"""Every kind of event, by its name."""
AGENT = "agent"
"""Whose event it is: a member of all of them."""
KIND = "kind"
_OF_AGENTS = {"agent_changed": ("name", "parent"), "approval_asked": ("name",), "approval_decided": ("name",)}
"""Further members that name an agent."""


@attrs.frozen(kw_only=True)
class EventPattern:
    """Events of one kind whose members are as wanted.

    A text is equal to the member, or a `/regular expression/` that is found in it. Of a list, some item must be as
    wanted; of an object, the members that are named.
    """

    kind: str
    members: Mapping[str, Any] = attrs.field(factory=dict)
    line: int = 0
    """Of the story's file."""

    def matches(self, observed: SessionEvent) -> bool:
        """Whether *observed* is meant."""
        return observed.kind == self.kind and matches_value(self.members, observed.members)

    def agents(self) -> list[str]:
        """The names of agents that it asks for."""
        names = (self.members.get(key) for key in agent_members(self.kind))
        return [name for name in names if isinstance(name, str)]

    def __str__(self) -> str:
        wanted = "".join(f" {key}={value!r}" for key, value in self.members.items())
        return f"{self.kind}{wanted}"


def agent_members(kind: str) -> tuple[str, ...]:
    """The members of an event of this *kind* that name an agent."""
    return (AGENT, *_OF_AGENTS.get(kind, ()))


def matches_value(wanted: Any, found: Any) -> bool:
    """Whether what was *found* in an event is as a story wants it."""
    if isinstance(found, list) and not isinstance(wanted, list):
        return any(matches_value(wanted, item) for item in found)
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and matches_value(value, found[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, str) and isinstance(found, str):
        pattern = TextPattern.parse(wanted)
        return wanted == found if pattern.expression is None else pattern.find(found) is not None
    return bool(wanted == found)


def parse_pattern(node: YamlNode) -> EventPattern:
    """The pattern that *node* is. Raises `LineInvalid` for a kind, a member or a value that no event has."""
    fields = node.fields("an event, such as `{kind: finished, agent: main}`")
    if KIND not in fields:
        raise node.refuse(f"{node.name} has no kind; which event is meant? docs/events.md lists them")
    kind = fields[KIND].text()
    if kind not in KINDS:
        raise fields[KIND].refuse(f"no event is a {kind!r}; {known_names_hint(kind, KINDS)}")
    known = get_type_hints(KINDS[kind])
    node.known_fields((KIND, AGENT, *known))
    for key, value in fields.items():
        _check_value(value, known.get(key))
    members = {key: value.plain() for key, value in fields.items() if key != KIND}
    return EventPattern(kind=kind, members=members, line=node.line)


def _check_value(node: YamlNode, type_: Any) -> None:
    if isinstance(node.value, str):
        try:
            pattern = TextPattern.parse(node.value)
        except ValueError as exc:
            raise node.refuse(str(exc)) from exc
        if pattern.expression is None and get_origin(type_) is Literal and node.value not in get_args(type_):
            raise node.refuse(f"{node.name} is never {node.value!r}; {known_names_hint(node.value, get_args(type_))}")
