"""Converts an ended session to a scenario file (YAML test that repeats it), with remarks on what is not recorded."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio
import yaml

from coterie.agents.definitions.team_definition import load_recorded_team
from coterie.agents.events.event_reader import LineUnreadable, SessionEvent
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.envelope import Envelope
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry, read_ledger
from coterie.orchestrator.session.overview import is_running
from coterie.scenarios.recording.initial_files import RecordedFiles, find_files
from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.recorded_actions import RecordedActions
from coterie.scenarios.recording.reply_script import Barriers, agent_replies
from coterie.scenarios.recording.session_options import (
    recorded_definitions,
    recorded_expectations,
    recorded_limits,
    recorded_options,
    recorded_settings,
    team_table,
)
from coterie.scenarios.recording.transcript_turns import AgentTurns, read_agent_turns
from coterie.scenarios.runner.run_record import sweep_mail, without_text_events
from coterie.session_directory import MAIN, SessionDirectory

ABOUT = 100
"""Maximum number of characters of the task that the `about` line of the scenario repeats."""
REMARKS = 40
"""Maximum number of remarks on files, and also of remarks on machine-specific texts; further ones are left out."""


@attrs.frozen(kw_only=True)
class RecordedScenario:
    """Text of a scenario file made from an ended session; not yet written to disk."""

    text: str
    remarks: tuple[str, ...]
    """Remarks on what is unknown or may differ when the scenario runs; `text` contains them as comments."""


def record_session(session: SessionDirectory, name: str) -> RecordedScenario:
    """Return a scenario (YAML test) named *name* that repeats *session*, which must have ended. Blocks.

    Raises `ConfigInvalid` if the session is running, its lead (first agent) got no model reply, or a file is damaged.
    """
    if is_running(session):
        raise ConfigInvalid(f"session {session.id}", "it is running; stop it with `coterie stop`, then record it")
    agents = {
        key: agent_turns for key, agent_turns in read_agent_turns(session.directory).items() if agent_turns.replies
    }
    if MAIN not in agents:
        raise ConfigInvalid(f"session {session.id}", "the session has no model reply to record; choose another one")
    events = without_text_events(read_session(session.directory))
    for observed in events:
        if isinstance(damage := observed.event, LineUnreadable):
            where = str(session.directory / damage.file)
            raise ConfigInvalid(where, f"line {damage.line} is damaged: {damage.reason}; run `coterie doctor`")
    mail = trio.run(sweep_mail, session, Clock.from_environment())
    path = session.directory / LEDGER
    ledger = list(read_ledger(path).lines) if path.exists() else []
    return _Recorder(session=session, name=name, agents=agents, events=events, mail=mail, ledger=ledger).recording()


@attrs.define(eq=False, kw_only=True)
class _Recorder:
    """Builds the scenario file of one ended session from its events, transcripts, mail and log of paid model calls."""

    session: SessionDirectory
    name: str
    agents: Mapping[str, AgentTurns]
    events: list[SessionEvent]
    mail: list[MessageHop]
    ledger: list[LedgerEntry]
    remarks: list[str] = attrs.field(factory=list)
    placeholders: Placeholders = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.placeholders = Placeholders(project=self.session.project, session=self.session.directory, home=Path.home())

    def recording(self) -> RecordedScenario:
        found = find_files(self.session.project, self.session.started, self.agents, list(self._elsewhere()))
        fields = {key: value for key, value in self._fields(found).items() if value not in (None, {}, [])}
        strange = list(self.placeholders.strange)[:REMARKS]
        own = (f"specific to the recorded machine or session; edit it if a run fails: {each}" for each in strange)
        remarks = (*found.unknown[:REMARKS], *dict.fromkeys(self.remarks), *own)
        head = [
            f"Recorded from a session of {len(self.agents)} agents by `coterie scenario record`.",
            *(["Not recorded, or possibly different in a run:"] if remarks else []),
            *(f"- {doubt}" for doubt in remarks),
        ]
        return RecordedScenario(text=scenario_text(fields, head), remarks=remarks)

    def _fields(self, found: RecordedFiles) -> dict[str, Any]:
        task = self.placeholders.mask_plain(self.session.task)
        team = load_recorded_team(self.session)
        actions = RecordedActions(
            events=self.events,
            messages=self._messages(),
            agents=self.agents,
            placeholders=self.placeholders,
            remarks=self.remarks,
        )
        steps, faults = actions.steps(), actions.faults()
        home = recorded_definitions(self.session.project, self.events)
        dead = len({(each.mailbox, each.id) for each in self.mail if each.kind == "dead"})
        workspace = {"git": found.is_git or None, "files": found.first, "home": home}
        return {
            "name": self.name,
            "about": f"Recorded: {' '.join(task.split())[:ABOUT]}",
            "workspace": {key: value for key, value in workspace.items() if value},
            **recorded_options(self.session, self.events, team, self.remarks),
            "settings": recorded_settings(self.events, self.agents, self.ledger, self.placeholders),
            "team": None if team is None else team_table(team, self.placeholders),
            "task": task,
            "steps": steps if len(steps) > 1 else None,
            "script": self._script(),
            "human": actions.user_actions(),
            "faults": faults,
            "limits": recorded_limits(actions.runs(), self.ledger, has_faults=bool(faults)),
            "expect": recorded_expectations(self.events, self.agents, found.last, dead, self.remarks),
        }

    def _script(self) -> dict[str, Any]:
        elsewhere = self._elsewhere()
        names = [MAIN, *(name for name in self.agents if name != MAIN)]
        script = {name: agent_replies(self.agents[name], self.placeholders, elsewhere.get(name)) for name in names}
        Barriers(script=script, agents=self.agents, messages=self._messages(), remarks=self.remarks).put()
        return {name: [_plain(reply) for reply in replies] for name, replies in script.items()}

    def _messages(self) -> dict[str, Envelope]:
        stored = (each.envelope for each in self.mail if each.kind == "stored")
        return {str(envelope.id): envelope for envelope in stored if envelope is not None}

    def _elsewhere(self) -> dict[str, Path]:
        """Return the working directories of agents that did not work in the project directory, by agent name."""
        directories = {each.agent: str(each.members["project"]) for each in self.events if each.kind == "started"}
        return {name: Path(path) for name, path in directories.items() if Path(path) != self.session.project}


def _plain(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a script reply; a one-item list in `asked`, `until` or `signal` becomes text: `[a]` -> `a`."""
    signals = {key: reply[key] for key in ("asked", "until", "signal") if key in reply}
    return {**reply, **{key: names[0] if len(names) == 1 else names for key, names in signals.items()}}


WIDTH = 110
SHORT = 90
"""Maximum number of characters of a mapping that is written on one line of YAML."""
_MAP = "tag:yaml.org,2002:map"


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes scenario files: list items are indented below their key, and aliases are not used."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT002 - overrides PyYAML
        """Indent the items of a list deeper than its key; PyYAML would write them at the same depth."""
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:
        """Return True, so that a repeated value is written in full each time instead of as a YAML alias."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text.rstrip("\n") or len(text) > WIDTH:
        style = "|"
    elif not text[:1].isalpha() or text.endswith(("\n", ":")):
        # Text in YAML 1.1 may be a number in 1.2.
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _mapping(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    """Return the YAML node of a mapping; a mapping with few short values is written on one line, in braces."""
    is_short = all(isinstance(value, str | int | float | None) and "\n" not in str(value) for value in mapping.values())
    is_short = is_short and sum(len(f"{key}: {value}, ") for key, value in mapping.items()) < SHORT
    return dumper.represent_mapping(_MAP, mapping.items(), flow_style=is_short)


class _Section(dict[str, Any]):
    """Mapping that `_Dumper` writes in block style: one key per line, never in braces on one line."""


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """Return the YAML node of a list with one item per line; mappings with one key are written without braces."""
    spread = [_Section(item) if isinstance(item, dict) and len(item) == 1 else item for item in items]
    return dumper.represent_sequence("tag:yaml.org,2002:seq", spread, flow_style=not items)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(
    _Section, lambda dumper, section: dumper.represent_mapping(_MAP, section.items(), flow_style=False)
)


def scenario_text(fields: Mapping[str, Any], remarks: Iterable[str]) -> str:
    """Return the text of a scenario file: *remarks* as comments, then *fields*, its keys and values, as YAML."""
    head = "".join(f"# {line}\n" for remark in remarks for line in remark.splitlines())
    sections = (
        yaml.dump(_Section({key: value}), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
        for key, value in fields.items()
    )
    return head + "\n" + "".join(sections)
