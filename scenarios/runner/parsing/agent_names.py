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
    """Names of the agents that a scenario can have."""

    names: frozenset[str]
    stems: frozenset[str]
    """Prefixes of numbered names: `fork` allows `fork-1`."""
    is_open: bool
    """True if the script computes agent names."""

    def is_known(self, name: str) -> bool:
        """True if an agent may have this name, or one that matches this `/regular expression/`."""
        pattern = TextPattern.parse(name)
        if self.is_open or (pattern.expression is not None and self.stems):
            return True
        if pattern.expression is not None:
            return any(pattern.find(known) for known in self.names)
        stem, _, number = name.rpartition("-")
        return name in self.names or (stem in self.stems and number.isdecimal())


def known_agents(script: Any, team: Any) -> KnownAgents:
    """Return the agents that are possible with *script* and *team*, both as JSON data."""
    calls = list(_agent_calls(script))
    named = [str(call["name"]) for call in calls if call.get("name") is not None]
    listed = set(script) - {DEFAULT} if isinstance(script, Mapping) else set()
    types = (str(call.get("subagent_type", GENERAL)).casefold() for call in calls if call.get("name") is None)
    return KnownAgents(
        names=frozenset({MAIN, ROOT_NAME, *listed, *named, *_members(team)}),
        stems=frozenset(re.sub(r"[^a-z0-9]+", "-", agent_type).strip("-") for agent_type in types),
        is_open=any("{{" in name for name in named),
    )


def _agent_calls(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the arguments of every call of the Agent tool, in any of its notations."""
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
