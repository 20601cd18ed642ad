"""Event patterns: the kind of an event and the members it must have."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs

from coterie.agents.events.event_log import EVENTS
from coterie.agents.events.event_reader import DERIVED_EVENTS, SessionEvent
from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.api_server.script.scripted_reply import TextPattern

KINDS: Mapping[str, type] = {str(kind.__struct_config__.tag): kind for kind in (*EVENTS, *DERIVED_EVENTS)}
"""Known event types by kind."""
AGENT = "agent"
"""Field of every event: the agent that the event belongs to."""
KIND = "kind"
_OF_AGENTS = {"agent_changed": ("name", "parent"), "approval_asked": ("name",), "approval_decided": ("name",)}
"""Other fields that name an agent, by event kind."""


@attrs.frozen(kw_only=True)
class EventPattern:
    """An event kind and the fields that an event must have to match.

    A string matches if it is equal to the field, or as `/regular expression/` if it is found in the field. A list
    matches if one item matches; an object matches if the named fields match.
    """

    kind: str
    members: Mapping[str, Any] = attrs.field(factory=dict)

    def matches(self, observed: SessionEvent) -> bool:
        """True if *observed* matches this pattern."""
        return observed.kind == self.kind and matches_value(self.members, observed.members)

    def agents(self) -> list[str]:
        """Return the agent names that the pattern requires."""
        names = (self.members.get(key) for key in agent_members(self.kind))
        return [name for name in names if isinstance(name, str)]

    def __str__(self) -> str:
        fields = "".join(f" {key}={value!r}" for key, value in self.members.items())
        return f"{self.kind}{fields}"


def agent_members(kind: str) -> tuple[str, ...]:
    """Return the fields of an event of *kind* that name an agent."""
    return (AGENT, *_OF_AGENTS.get(kind, ()))


def matches_value(expected: Any, found: Any) -> bool:
    """True if the value *found* in an event matches the value *expected* by a pattern."""
    if isinstance(found, list) and not isinstance(expected, list):
        return any(matches_value(expected, item) for item in found)
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and matches_value(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, str) and isinstance(found, str):
        pattern = TextPattern.parse(expected)
        return expected == found if pattern.expression is None else pattern.find(found) is not None
    return bool(expected == found)


def parse_pattern(node: YamlNode) -> EventPattern:
    """Parse an event pattern. Raises `LineInvalid` for a kind, a field or a value that no event has."""
    fields = node.fields("an event, such as `{kind: finished, agent: main}`")
    if KIND not in fields:
        raise node.refuse(f"{node.name} has no kind; add one of the event kinds of docs/events.md")
    kind = fields[KIND].text()
    if kind not in KINDS:
        raise fields[KIND].refuse(f"unknown event kind {kind!r}; {known_names_hint(kind, KINDS)}")
    known = get_type_hints(KINDS[kind])
    node.known_fields((KIND, AGENT, *known))
    for key, value in fields.items():
        if not isinstance(value.value, str):
            continue
        try:
            pattern = TextPattern.parse(value.value)
        except ValueError as exc:
            raise value.refuse(str(exc)) from exc
        names = get_args(known.get(key)) if get_origin(known.get(key)) is Literal else ()
        if pattern.expression is None and names and value.value not in names:
            raise value.refuse(f"{value.name} is never {value.value!r}; {known_names_hint(value.value, names)}")
    members = {key: value.plain() for key, value in fields.items() if key != KIND}
    return EventPattern(kind=kind, members=members)
