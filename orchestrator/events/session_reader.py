"""Events of a session as one stream, merged from the files of its agents."""

import heapq
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import attrs

from coterie.agents.events.event_reader import SessionEvent
from coterie.orchestrator.events.event_sources import EventSource, SourcedEvent, open_root_source, open_sources

SHARED_KINDS = ("noticed", "mcp_changed")
"""Kinds of events that the root tells of no agent in particular, and that whoever looks at one wants to know."""


def read_session(directory: Path, agent: str | None = None) -> Iterator[SessionEvent]:
    """What has happened in the session of *directory*, or to one *agent* of it.

    The events of one agent come in the order in which they happened, those of several are merged by time. A line that
    is not ended yet is left out, one that cannot be read is an event of its own. Blocks on the disk; raises `OSError`.
    """
    return SessionReader(directory, agent).read_new()


@attrs.define(eq=False)
class SessionReader:
    """Reads a session again and again; what was given once is not given again."""

    directory: Path
    agent: str | None = None
    """The only one to look at, or None for all."""
    _agents: "dict[str, _AgentReader]" = attrs.field(factory=dict, init=False)
    _root: EventSource | None = attrs.field(default=None, init=False)

    def agent_directories(self) -> list[Path]:
        """Where the agents to be read have their files now."""
        agents = self.directory / "agents"
        found = [path for path in agents.iterdir() if path.is_dir()] if agents.is_dir() else []
        return sorted(path for path in found if self.agent in (None, path.name))

    def read_new(self) -> Iterator[SessionEvent]:
        """What is new. Read each sweep to its end before the next one. Raises `OSError`."""
        for path in self.agent_directories():
            if path.name not in self._agents:
                self._agents[path.name] = _AgentReader(*open_sources(path, session=self.directory.name))
        sweeps = [agent.read_new() for agent in self._agents.values()]
        return map(attrgetter("event"), heapq.merge(self._read_new_of_root(), *sweeps, key=attrgetter("order")))

    def _read_new_of_root(self) -> Iterator[SourcedEvent]:
        """What the root told of its agents, or of the one that is looked at, and of what all of them have."""
        if self._root is None:
            self._root = open_root_source(self.directory)
        for arrival in self._root.read(self._root.lines.size()):
            self._root.mark_read(arrival)
            members = arrival.event.members
            if self.agent in (None, members.get("name")) or members.get("kind") in SHARED_KINDS:
                yield arrival


@attrs.define(eq=False)
class _AgentReader:
    """Reads one agent's two files as it wrote them: in one order."""

    _events: EventSource
    _recorded: EventSource

    def read_new(self) -> Iterator[SourcedEvent]:
        # The agent writes meanwhile. All that it recorded before it told what is sure stands before `end`; what it
        # told later is given only if something that it recorded still later is there too, or else with the next sweep.
        sure = self._events.lines.size()
        end = self._recorded.lines.size()
        told = self._events.read(self._events.lines.size())
        recorded = self._recorded.read(end)
        event, record = next(told, None), next(recorded, None)
        while record is not None or (event is not None and event.line.end <= sure):
            if event is None or (record is not None and record.order < event.order):
                assert record is not None
                self._recorded.mark_read(record)
                yield record
                record = next(recorded, None)
            else:
                self._events.mark_read(event)
                yield event
                event = next(told, None)
