"""Records an ended session as a scenario, with remarks on what could not be recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.definitions.team_definition import load_recorded_team
from coterie.agents.events.event_reader import LineUnreadable, SessionEvent
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.message_history import MessageHistory, MessageHop
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry, read_ledger
from coterie.orchestrator.session.overview import is_running
from coterie.scenarios.recording.barriers import Barriers
from coterie.scenarios.recording.initial_files import RecordedFiles, find_files
from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.recorded_actions import RecordedActions
from coterie.scenarios.recording.recorded_expectations import recorded_expectations, recorded_limits
from coterie.scenarios.recording.reply_script import agent_replies
from coterie.scenarios.recording.scenario_yaml import scenario_text
from coterie.scenarios.recording.session_options import (
    recorded_definitions,
    recorded_options,
    recorded_settings,
    team_table,
)
from coterie.scenarios.recording.transcript_turns import AgentTurns, read_agent_turns
from coterie.scenarios.runner.run_record import without_text_events
from coterie.session_directory import MAIN, SessionDirectory

ABOUT = 100
"""Characters of the task that say what a scenario is about."""
REMARKS = 40
"""Lines about one kind of gap."""


@attrs.frozen(kw_only=True)
class RecordedScenario:
    """A scenario that was made of a session."""

    text: str
    doubts: tuple[str, ...]
    """What a play may do otherwise, or cannot know; the text says it too."""


def record_session(session: SessionDirectory, name: str) -> RecordedScenario:
    """The scenario *name* of *session*, which does not run any more. Blocks.

    Raises `ConfigInvalid` for one that runs, has said nothing, or cannot be read.
    """
    if is_running(session):
        raise ConfigInvalid(f"session {session.id}", "still runs; record it when it has ended, or `coterie stop` it")
    voices = {key: voice for key, voice in read_agent_turns(session.directory).items() if voice.replies}
    if MAIN not in voices:
        raise ConfigInvalid(f"session {session.id}", "has nothing to record: no model has answered its lead")
    events = without_text_events(read_session(session.directory))
    for observed in events:
        if isinstance(damage := observed.event, LineUnreadable):
            raise ConfigInvalid(str(session.directory / damage.file), f"line {damage.line}: {damage.reason}")
    mail = trio.run(_mail, session)
    path = session.directory / LEDGER
    ledger = list(read_ledger(path).lines) if path.exists() else []
    return _Recorder(session=session, name=name, voices=voices, events=events, mail=mail, ledger=ledger).recording()


async def _mail(session: SessionDirectory) -> list[MessageHop]:
    with SessionMail.open(session, Clock.from_environment()) as office:
        traffic = MessageHistory.of(office)
        try:
            return await traffic.sweep()
        finally:
            traffic.close()


@attrs.define(eq=False, kw_only=True)
class _Recorder:
    """Makes one recording."""

    session: SessionDirectory
    name: str
    voices: Mapping[str, AgentTurns]
    events: list[SessionEvent]
    mail: list[MessageHop]
    ledger: list[LedgerEntry]
    doubts: list[str] = attrs.field(factory=list)
    places: Placeholders = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.places = Placeholders(project=self.session.project, session=self.session.directory, home=Path.home())

    def recording(self) -> RecordedScenario:
        found = find_files(self.session.project, self.session.started, self.voices, list(self._elsewhere()))
        fields = {key: value for key, value in self._fields(found).items() if value not in (None, {}, [])}
        doubts = (*found.unknown[:REMARKS], *dict.fromkeys(self.doubts), *self._strange())
        head = [
            f"Recorded from a session of {len(self.voices)} agents by `coterie scenario record`.",
            *(["What could not be recorded, or may go otherwise in a play:"] if doubts else []),
            *(f"- {doubt}" for doubt in doubts),
        ]
        return RecordedScenario(text=scenario_text(fields, head), doubts=doubts)

    def _fields(self, found: RecordedFiles) -> dict[str, Any]:
        task = self.places.mask_plain(self.session.task)
        team = load_recorded_team(self.session)
        conduct = RecordedActions(
            events=self.events, letters=self._letters(), voices=self.voices, places=self.places, doubts=self.doubts
        )
        steps, faults = conduct.steps(), conduct.faults()
        home = recorded_definitions(self.session.project, self.events)
        dead = len({(each.mailbox, each.id) for each in self.mail if each.kind == "dead"})
        workspace = {"git": found.is_git or None, "files": found.first, "home": home}
        return {
            "name": self.name,
            "about": f"Recorded: {' '.join(task.split())[:ABOUT]}",
            "workspace": {key: value for key, value in workspace.items() if value},
            **recorded_options(self.session, self.events, team, self.doubts),
            "settings": recorded_settings(self.events, self.voices, self.ledger, self.places),
            "team": None if team is None else team_table(team, self.places),
            "task": task,
            "steps": steps if len(steps) > 1 else None,
            "script": self._script(),
            "human": conduct.user_actions(),
            "faults": faults,
            "limits": recorded_limits(conduct.runs(), self.ledger, has_faults=bool(faults)),
            "expect": recorded_expectations(self.events, self.voices, found.last, dead, self.doubts),
        }

    def _script(self) -> dict[str, Any]:
        elsewhere = self._elsewhere()
        names = [MAIN, *(name for name in self.voices if name != MAIN)]
        lanes = {name: agent_replies(self.voices[name], self.places, elsewhere.get(name)) for name in names}
        barriers = Barriers(lanes=lanes, voices=self.voices, letters=self._letters(), doubts=self.doubts)
        barriers.put()
        return {name: [_plain(reply) for reply in replies] for name, replies in lanes.items()}

    def _letters(self) -> dict[str, Envelope]:
        stored = (each.envelope for each in self.mail if each.kind == "stored")
        return {str(envelope.id): envelope for envelope in stored if envelope is not None}

    def _elsewhere(self) -> dict[str, Path]:
        """Agents that worked in a directory of their own, and which."""
        told = {each.agent: str(each.members["project"]) for each in self.events if each.kind == "started"}
        return {name: Path(path) for name, path in told.items() if Path(path) != self.session.project}

    def _strange(self) -> list[str]:
        found = list(self.places.strange)[:REMARKS]
        return [
            f"{each} stands in it, which is of the machine or the session that it was recorded on" for each in found
        ]


def _plain(reply: Mapping[str, Any]) -> dict[str, Any]:
    """*reply* with one signal as a word, not as a list."""
    signals = {key: reply[key] for key in ("asked", "until", "signal") if key in reply}
    return {**reply, **{key: names[0] if len(names) == 1 else names for key, names in signals.items()}}
