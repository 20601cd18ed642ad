"""Agent names that can occur in a run of a scenario, derived from its script (model replies) and its team."""

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
    """Agent names that can occur in a run of a scenario; used to find misspelled names in its file."""

    names: frozenset[str]
    stems: frozenset[str]
    """Prefixes of the numbered names that unnamed agents get: `fork` allows `fork-1`."""
    is_open: bool
    """True if the script computes agent names with `{{...}}`, so that any name is possible."""

    def is_known(self, name: str) -> bool:
        """True if *name*, an agent name or a `/regular expression/`, fits an agent that the scenario may have."""
        pattern = TextPattern.parse(name)
        if self.is_open or (pattern.expression is not None and self.stems):
            return True
        if pattern.expression is not None:
            return any(pattern.find(known) for known in self.names)
        stem, _, number = name.rpartition("-")
        return name in self.names or (stem in self.stems and number.isdecimal())


def known_agents(script: Any, team: Any) -> KnownAgents:
    """Return the agent names possible with *script* (model replies by agent) and *team* (team file), as JSON data."""
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
    """Yield the input of each Agent tool call (starts an agent) in *value*, a part of a script, in any notation."""
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
