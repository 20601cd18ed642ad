"""Turning a session into a scenario: all that is recorded of it, and in words what is not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope
from coterie.orchestrator.cli.mail.traffic import Passage, Traffic
from coterie.orchestrator.events.observed import LineUnreadable, Observed
from coterie.orchestrator.events.reader import read_session
from coterie.orchestrator.ledger import LEDGER, LedgerLine, read_ledger
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.teams.recording import recorded_team
from coterie.scenarios.recording.barriers import Barriers
from coterie.scenarios.recording.circumstances import definitions, options, settings, team_table
from coterie.scenarios.recording.conduct import Conduct
from coterie.scenarios.recording.lanes import lane
from coterie.scenarios.recording.outcomes import expectations, limits
from coterie.scenarios.recording.places import Places
from coterie.scenarios.recording.voices import Voice, read_voices
from coterie.scenarios.recording.workspace import Found, find_files
from coterie.scenarios.recording.writing import scenario_text
from coterie.scenarios.runner.played import notable

ABOUT = 100
"""Characters of the task that say what a scenario is about."""
REMARKS = 40
"""Lines about one kind of gap."""


@attrs.frozen(kw_only=True)
class Recording:
    """A scenario that was made of a session."""

    text: str
    doubts: tuple[str, ...]
    """What a play may do otherwise, or cannot know; the text says it too."""


def record_session(session: Session, name: str) -> Recording:
    """The scenario *name* of *session*, which does not run any more. Blocks.

    Raises `ConfigInvalid` for one that runs, has said nothing, or cannot be read.
    """
    if is_running(session):
        raise ConfigInvalid(f"session {session.id}", "still runs; record it when it has ended, or `coterie stop` it")
    voices = {key: voice for key, voice in read_voices(session.directory).items() if voice.replies}
    if MAIN not in voices:
        raise ConfigInvalid(f"session {session.id}", "has nothing to record: no model has answered its lead")
    events = notable(read_session(session.directory))
    for observed in events:
        if isinstance(damage := observed.event, LineUnreadable):
            raise ConfigInvalid(str(session.directory / damage.file), f"line {damage.line}: {damage.reason}")
    mail = trio.run(_mail, session)
    path = session.directory / LEDGER
    ledger = list(read_ledger(path).lines) if path.exists() else []
    return _Recorder(session=session, name=name, voices=voices, events=events, mail=mail, ledger=ledger).recording()


async def _mail(session: Session) -> list[Passage]:
    with PostOffice.of(session, Clock.from_environment()) as office:
        traffic = Traffic.of(office)
        try:
            return await traffic.sweep()
        finally:
            traffic.close()


@attrs.define(eq=False, kw_only=True)
class _Recorder:
    """Makes one recording."""

    session: Session
    name: str
    voices: Mapping[str, Voice]
    events: list[Observed]
    mail: list[Passage]
    ledger: list[LedgerLine]
    doubts: list[str] = attrs.field(factory=list)
    places: Places = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.places = Places(project=self.session.project, session=self.session.directory, home=Path.home())

    def recording(self) -> Recording:
        found = find_files(self.session.project, self.session.started, self.voices, list(self._elsewhere()))
        fields = {key: value for key, value in self._fields(found).items() if value not in (None, {}, [])}
        doubts = (*found.unknown[:REMARKS], *dict.fromkeys(self.doubts), *self._strange())
        head = [
            f"Recorded from a session of {len(self.voices)} agents by `coterie scenario record`.",
            *(["What could not be recorded, or may go otherwise in a play:"] if doubts else []),
            *(f"- {doubt}" for doubt in doubts),
        ]
        return Recording(text=scenario_text(fields, head), doubts=doubts)

    def _fields(self, found: Found) -> dict[str, Any]:
        task = self.places.of_plain(self.session.task)
        team = recorded_team(self.session)
        conduct = Conduct(
            events=self.events, letters=self._letters(), voices=self.voices, places=self.places, doubts=self.doubts
        )
        steps, faults = conduct.steps(), conduct.faults()
        home = definitions(self.session.project, self.events)
        dead = len({(each.mailbox, each.id) for each in self.mail if each.kind == "dead"})
        workspace = {"git": found.is_git or None, "files": found.first, "home": home}
        return {
            "name": self.name,
            "about": f"Recorded: {' '.join(task.split())[:ABOUT]}",
            "workspace": {key: value for key, value in workspace.items() if value},
            **options(self.session, self.events, team, self.doubts),
            "settings": settings(self.events, self.voices, self.ledger, self.places),
            "team": None if team is None else team_table(team, self.places),
            "task": task,
            "steps": steps if len(steps) > 1 else None,
            "script": self._script(),
            "human": conduct.human(),
            "faults": faults,
            "limits": limits(conduct.runs(), self.ledger, has_faults=bool(faults)),
            "expect": expectations(self.events, self.voices, found.last, dead, self.doubts),
        }

    def _script(self) -> dict[str, Any]:
        elsewhere = self._elsewhere()
        names = [MAIN, *(name for name in self.voices if name != MAIN)]
        lanes = {name: lane(self.voices[name], self.places, elsewhere.get(name)) for name in names}
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
