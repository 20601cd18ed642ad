"""Events of a session as one stream, merged from the logs of its agents and its root (supervisor)."""

import heapq
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import attrs

from coterie.agents.events.event_reader import SessionEvent
from coterie.orchestrator.events.event_sources import EventSource, LogLines, SourcedEvent, open_sources
from coterie.session_directory import EVENT_LOG

SHARED_KINDS = ("noticed", "mcp_changed")
"""Types of events of the root (supervisor) that concern all agents; they are shown even if one agent is selected."""


def read_session(directory: Path, agent: str | None = None) -> Iterator[SessionEvent]:
    """Yield the events of the session in *directory*, or only those of *agent*, about it, or about all agents.

    The events of one agent are in the order in which they happened. The events of several agents are merged by time. An
    incomplete last line is skipped, and an unreadable line becomes a `LineUnreadable` event. Blocks on the disk; raises
    `OSError`.
    """
    return SessionReader(directory, agent).read_new()


@attrs.define(eq=False)
class SessionReader:
    """Incremental reader of the events of a session, or of one agent of it; returns each event once."""

    directory: Path
    agent: str | None = None
    """Name of the only agent to read; None for all."""
    _agents: "dict[str, _AgentReader]" = attrs.field(factory=dict, init=False)
    _root: EventSource = attrs.field(init=False)

    @_root.default
    def _open_root(self) -> EventSource:
        lines = LogLines(self.directory / EVENT_LOG)
        return EventSource(session=self.directory.name, agent="root", lines=lines)

    def agent_directories(self) -> list[Path]:
        """Return the directories of the agents to read (all, or `agent`) that exist now."""
        agents = self.directory / "agents"
        found = [path for path in agents.iterdir() if path.is_dir()] if agents.is_dir() else []
        return sorted(path for path in found if self.agent in (None, path.name))

    def read_new(self) -> Iterator[SessionEvent]:
        """Yield the events that were not read before. Exhaust the iterator before the next call. Raises `OSError`."""
        for path in self.agent_directories():
            if path.name not in self._agents:
                self._agents[path.name] = _AgentReader(*open_sources(path, session=self.directory.name))
        agents = [agent.read_new() for agent in self._agents.values()]
        return map(attrgetter("event"), heapq.merge(self._read_new_of_root(), *agents, key=attrgetter("order")))

    def _read_new_of_root(self) -> Iterator[SourcedEvent]:
        """Yield the new events of the root (supervisor) about the agents to read, and those that concern all agents."""
        for sourced in self._root.read_all():
            members = sourced.event.members
            if self.agent in (None, members.get("name")) or members.get("kind") in SHARED_KINDS:
                yield sourced


@attrs.define(eq=False)
class _AgentReader:
    """Incremental reader of one agent; merges event log and transcript in the order in which the agent wrote them."""

    _log: EventSource
    _transcript: EventSource

    def read_new(self) -> Iterator[SourcedEvent]:
        # The agent may write while this runs. The size of the log is taken first: every record that the agent wrote
        # before an event within `log_size` is then within `end`. A later event is returned only if a still later record
        # is available too; otherwise the next call returns it.
        log_size = self._log.lines.size()
        end = self._transcript.lines.size()
        events = self._log.read(self._log.lines.size())
        records = self._transcript.read(end)
        event, record = next(events, None), next(records, None)
        while record is not None or (event is not None and event.line.end <= log_size):
            if event is None or (record is not None and record.order < event.order):
                assert record is not None
                self._transcript.mark_read(record)
                yield record
                record = next(records, None)
            else:
                self._log.mark_read(event)
                yield event
                event = next(events, None)
