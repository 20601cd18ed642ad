"""Event patterns of scenario files: the kind of an event, and field values that the event must have."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs

from coterie.agents.events.event_log import EVENTS
from coterie.agents.events.event_reader import DERIVED_EVENTS, SessionEvent
from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.api_server.script.scripted_reply import TextPattern

KINDS: Mapping[str, type] = {str(kind.__struct_config__.tag): kind for kind in (*EVENTS, *DERIVED_EVENTS)}
"""Event classes by the `kind` with which a pattern names them, such as `finished`."""
AGENT = "agent"
"""Name of the field, present in every event, that contains the name of the event's agent."""
KIND = "kind"
_OF_AGENTS = {"agent_changed": ("name", "parent"), "approval_asked": ("name",), "approval_decided": ("name",)}
"""Fields that contain an agent name in addition to `agent`, by event kind."""


@attrs.frozen(kw_only=True)
class EventPattern:
    """Pattern that an event matches if it has this kind and these fields (`members`).

    A text must equal the field; a `/regular expression/` must match a part of the field. A field that is a list matches
    if one of its items matches; a field that is an object, if its fields named in the pattern match.
    """

    kind: str
    members: Mapping[str, Any] = attrs.field(factory=dict)

    def matches(self, observed: SessionEvent) -> bool:
        """True if the event *observed* has the kind and the fields of this pattern."""
        return observed.kind == self.kind and matches_value(self.members, observed.members)

    def agents(self) -> list[str]:
        """Return the agent names in the fields of this pattern, to check that the scenario has such agents."""
        names = (self.members.get(key) for key in agent_members(self.kind))
        return [name for name in names if isinstance(name, str)]

    def __str__(self) -> str:
        fields = "".join(f" {key}={value!r}" for key, value in self.members.items())
        return f"{self.kind}{fields}"


def agent_members(kind: str) -> tuple[str, ...]:
    """Return the names of the fields of an event of *kind* that contain an agent name, such as `agent` and `parent`."""
    return (AGENT, *_OF_AGENTS.get(kind, ()))


def matches_value(expected: Any, found: Any) -> bool:
    """True if *found*, a value in an event (or an item of a list), matches *expected*: equal, regex, partial object."""
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
    """Parse the event pattern *node* of a scenario file. Raises `LineInvalid` for an unknown kind, field or value."""
    fields = node.fields("an event, such as `{kind: finished, agent: main}`")
    if KIND not in fields:
        raise node.refuse(f"{node.name} has no 'kind'; add one of the event kinds of docs/events.md")
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
            raise value.refuse(f"unknown {value.name} {value.value!r}; {known_names_hint(value.value, names)}")
    members = {key: value.plain() for key, value in fields.items() if key != KIND}
    return EventPattern(kind=kind, members=members)
