"""Names of agents that a scenario can have, by its script and its team."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from coterie.agents.root_link.spawn_request import GENERAL
from coterie.orchestrator.supervisor.agent_status import ROOT_NAME
from coterie.scenarios.api_server.script.script_parser import DEFAULT
from coterie.scenarios.api_server.script.scripted_reply import TextPattern
from coterie.session_directory import MAIN

_TOOL = "Agent"


@attrs.frozen(kw_only=True)
class KnownAgents:
    """Names of agents."""

    names: frozenset[str]
    stems: frozenset[str]
    """Of agents that are named by number: `fork` has `fork-1`."""
    is_open: bool
    """Whether the script makes names up."""

    def is_known(self, name: str) -> bool:
        """Whether there can be an agent of that name, or one that a `/regular expression/` finds."""
        pattern = TextPattern.parse(name)
        if self.is_open or (pattern.expression is not None and self.stems):
            return True
        if pattern.expression is not None:
            return any(pattern.find(known) for known in self.names)
        stem, _, number = name.rpartition("-")
        return name in self.names or (stem in self.stems and number.isdecimal())


def known_agents(script: Any, team: Any) -> KnownAgents:
    """Who can be there with this *script* and this *team*, both as JSON holds them."""
    calls = list(_agent_calls(script))
    named = [str(call["name"]) for call in calls if call.get("name") is not None]
    lanes = set(script) - {DEFAULT} if isinstance(script, Mapping) else set()
    return KnownAgents(
        names=frozenset({MAIN, ROOT_NAME, *lanes, *named, *_members(team)}),
        stems=frozenset(_stem(str(call.get("subagent_type", GENERAL))) for call in calls if call.get("name") is None),
        is_open=any("{{" in name for name in named),
    )


def _stem(kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", kind.casefold()).strip("-")


def _agent_calls(value: Any) -> Iterator[Mapping[str, Any]]:
    """The arguments of every call of the Agent tool, in whichever form it is written."""
    if isinstance(value, list):
        for item in value:
            yield from _agent_calls(item)
    elif isinstance(value, Mapping):
        if _TOOL in (value.get("name"), value.get("tool")) and isinstance(value.get("input"), Mapping):
            yield value["input"]
        elif isinstance(value.get(_TOOL), Mapping):
            yield value[_TOOL]
        for item in value.values():
            yield from _agent_calls(item)


def _members(team: Any) -> Iterator[str]:
    members = team.get("members", team.get("member", ())) if isinstance(team, Mapping) else ()
    if isinstance(members, Mapping):
        yield from members
    else:
        yield from (str(member["name"]) for member in members if isinstance(member, Mapping) and "name" in member)
