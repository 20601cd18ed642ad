"""The file of a team: all that is wrong with it is told at once, with lines, before anything starts."""

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from coterie.agents.definitions import load_definitions
from coterie.agents.project import checkout_root
from coterie.orchestrator.settings import load_settings
from coterie.orchestrator.teams.flaws import Flaw, TeamInvalid
from coterie.orchestrator.teams.members import Staff
from coterie.orchestrator.teams.table_reading import Kinds, Notes
from coterie.orchestrator.teams.tasks import Agenda
from coterie.orchestrator.teams.team import Team
from coterie.orchestrator.teams.toml_lines import Place, TomlLines

LARGEST = 1_000_000
"""Bytes."""
TEAM: Kinds = {"name": str, "coordinator": bool, "lead": None, "members": None, "tasks": None}
EXAMPLE = 'begin with [[members]], name = "scout" and type = "explore"; docs/teams.md has more'


def read_team(path: Path, project: Path) -> Team:
    """The team that the file *path* describes, for work in the directory *project*. Blocks on the disk.

    Raises `TeamInvalid` with every flaw of it, and `ConfigInvalid` where the table of models, or the settings of the
    project, cannot be used.
    """
    table, lines = _load(path)
    team = team_of(table, lines, path, project)
    if flaws := [Flaw(path=path, line=lines.of_place(*place), reason=why) for place, why in _misfits(team, project)]:
        raise TeamInvalid.of(*flaws)
    return team


def team_of(table: dict[str, Any], lines: TomlLines, path: Path, project: Path) -> Team:
    """The team that *table*, read from *path*, describes. Raises as `read_team` does."""
    notes = Notes(path, lines)
    fields = notes.fields((), table, TEAM)
    is_coordinator = fields.get("coordinator", False)
    if not table:
        notes.tell((), f"there is no team in it; {EXAMPLE}")
    staff = Staff(notes, load_definitions(project).by_name)
    lead = staff.lead(table["lead"], is_coordinator=is_coordinator) if "lead" in table else None
    members = tuple(staff.members(notes.tables("members", table.get("members", []))))
    agenda = Agenda(notes, [member.name for member in members if member.name])
    tasks = agenda.tasks(notes.tables("tasks", table.get("tasks", [])))
    if notes.flaws:
        raise TeamInvalid.of(*notes.flaws)
    name = fields.get("name", path.stem)
    return Team(name=name, coordinator=is_coordinator, lead=lead, members=members, tasks=tasks)


def _misfits(team: Team, project: Path) -> Iterator[tuple[Place, str]]:
    """What a team without a flaw cannot have in this *project*."""
    room = load_settings(project, {}, os.environ).agents.at_once - 1
    if len(team.members) > room:
        reason = f"the lead and {len(team.members)} members are more than may be at work at a time"
        yield ("members", room), f"{reason}: agents.at_once is {room + 1}; raise it, or take members away"
    if not (checkout_root(project) / ".git").exists():
        for index in (index for index, member in enumerate(team.members) if member.worktree):
            reason = f"a worktree needs a git repository, and {project} is in none"
            yield ("members", index, "worktree"), f"{reason}: run `git init`, or take the key away"


def _load(path: Path) -> tuple[dict[str, Any], TomlLines]:
    text = _text(path)
    try:
        return tomllib.loads(text, parse_float=Decimal), TomlLines.of(text)
    except tomllib.TOMLDecodeError as exc:
        where = re.search(r" \(at line (\d+), column \d+\)$", str(exc))
        line = int(where[1]) if where else text.count("\n", 0, len(text.rstrip())) + 1
        reason = str(exc)[: where.start()] if where else str(exc)
        raise _unusable(path, f"not TOML: {reason[:1].lower()}{reason[1:]}", line) from exc
    except RecursionError as exc:
        raise _unusable(path, "not a team: it is nested too deeply") from exc


def _text(path: Path) -> str:
    try:
        facts = path.stat()
        # Opening a pipe would wait for its other end.
        if not stat.S_ISREG(facts.st_mode):
            raise _unusable(path, "not a file; give the TOML file of a team")
        if facts.st_size > LARGEST:
            raise _unusable(path, f"too large for a team: {facts.st_size:,} bytes, at most {LARGEST:,} are read")
        content = path.read_bytes()
    except (OSError, ValueError) as exc:  # a NUL in a path is a ValueError
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise _unusable(path, f"cannot be read: {reason}; give the TOML file of a team") from exc
    try:
        return content.decode("utf-8-sig")  # some editors put a mark before the first line
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        reason = f"not UTF-8: byte 0x{exc.object[exc.start]:02x} here; save the file as UTF-8"
        raise _unusable(path, reason, line) from exc


def _unusable(path: Path, reason: str, line: int = 1) -> TeamInvalid:
    return TeamInvalid.of(Flaw(path=path, line=line, reason=reason))
