"""Parser of team files, which define the agents and tasks of a team in TOML; reports all problems of a file."""

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.definitions.definition_files import FileProblem, read_text
from coterie.agents.definitions.store import load_definitions
from coterie.agents.definitions.team_definition import TeamDefinition, TeamLead, TeamMember, TeamTask
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.permissions.path_pattern import PathPattern
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.spawn_request import FORK, GENERAL, MemoryScope, Process
from coterie.errors import ConfigInvalid
from coterie.mailbox.address import MAIN, USER, check_name
from coterie.mailbox.errors import NameInvalid
from coterie.mailbox.tasks.task import LONGEST_DESCRIPTION, LONGEST_SUBJECT
from coterie.orchestrator.settings.settings_loader import InvalidValue, convert, format_value, load_settings
from coterie.paths import checkout_root
from coterie.source_positions import TomlKeyPath, TomlPositions
from coterie.suggestions import closest_match, did_you_mean


@attrs.frozen(kw_only=True)
class TeamFileProblem:
    """One problem in a team file, shown to the user as `path:line: reason`."""

    path: Path
    line: int
    reason: str
    """Text in one line: the problem and the expected form."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@attrs.define(eq=False)
class TeamInvalid(ConfigInvalid):
    """Error: a team file cannot be used. It carries all problems of the file, and its text has a line for each."""

    flaws: tuple[TeamFileProblem, ...] = ()
    """All problems of the team file, in line order."""

    @classmethod
    def of(cls, *flaws: TeamFileProblem) -> "TeamInvalid":
        """Return the error with *flaws*, all problems of one team file; at least one is required."""
        ordered = tuple(sorted(flaws, key=lambda flaw: flaw.line))
        return cls(str(ordered[0].path), ordered[0].reason, ordered)

    def __str__(self) -> str:
        return "\n".join(map(str, self.flaws))


KeyTypes = Mapping[str, Any]
"""Allowed keys of a TOML table -> type of the value; None if another function checks the value."""


@attrs.define(eq=False)
class TeamTableReader:
    """Reader of the TOML tables in one team file: checks keys and types, and collects all problems in `flaws`."""

    path: Path
    _lines: TomlPositions
    flaws: list[TeamFileProblem] = attrs.field(factory=list, init=False)

    def add_problem(self, place: TomlKeyPath, reason: str) -> None:
        """Record *reason* as a problem in the line of the key *place*, such as `("members", 0, "name")`."""
        self.flaws.append(TeamFileProblem(path=self.path, line=self._lines.line_of(*place), reason=reason))

    def fields(self, place: TomlKeyPath, table: object, types: KeyTypes) -> dict[str, Any]:
        """Return the values in *table* that have the type in *types*. Other keys and values become problems."""
        if not isinstance(table, dict):
            name = ".".join(map(str, place))
            self.add_problem(place, f"{name} is {format_value(table)}; it should be a table")
            return {}
        for key in (key for key in table if key not in types):
            self.add_problem((*place, key), f"unknown key {key!r}; {did_you_mean(key, types)}")
        read = {key: self._value((*place, key), table[key], type_) for key, type_ in types.items() if key in table}
        return {key: value for key, value in read.items() if value is not None}

    def tables(self, key: str, value: object) -> list[object]:
        """Return *value*, the list of tables `[[key]]`. If it is no list, add a problem and return an empty list."""
        if isinstance(value, list):
            return value
        self.add_problem(
            (key,), f"{key} is {format_value(value)}; it should be a list of tables, each after a line [[{key}]]"
        )
        return []

    def require(self, place: TomlKeyPath, table: Mapping[str, Any], given: object, example: str, key: str) -> None:
        """Add a problem, suggesting *example*, if TOML table *given* has no *key*; *table* has its valid values."""
        if key not in table and isinstance(given, dict) and key not in given:
            self.add_problem(place, f"{key} is missing: add a line such as `{key} = {example}`")

    def _value(self, place: TomlKeyPath, value: object, type_: Any) -> Any:
        if type_ is None:
            return value
        try:
            return convert(str(place[-1]), value, type_)
        except InvalidValue as exc:
            self.add_problem(place, str(exc))
            return None


LEAD_KEYS: KeyTypes = {"agent": str, "model": str}
MEMBER_KEYS: KeyTypes = {
    "name": str,
    "type": str,
    "model": str,
    "prompt": str,
    "plan_required": None,
    "budget_usd": Decimal,
    "memory": MemoryScope,
    "worktree": bool,
    "process": Process,
}
RESERVED_NAMES: Mapping[str, str] = {
    MAIN: "it is the name of the lead",
    USER: "it is the name of the user",
    "root": "it is the name of the root process",
}


@attrs.frozen
class MemberParser:
    """Parser of the lead (first agent) and the members in a team file; adds problems to its `TeamTableReader`."""

    _reader: TeamTableReader
    _agent_types: Collection[str]

    def lead(self, table: object, *, is_coordinator: bool) -> TeamLead:
        """Parse the table `[lead]` of a team file; with *is_coordinator* it may have a model, but no agent type."""
        fields = self._reader.fields(("lead",), table, LEAD_KEYS)
        if is_coordinator and "agent" in fields:
            reason = "a coordinator cannot have another agent type; remove `coordinator = true` or this key"
            self._reader.add_problem(("lead", "agent"), reason)
        elif "agent" in fields:
            self._check_type(("lead", "agent"), fields["agent"])
        self._check_model(("lead", "model"), fields.get("model"))
        return TeamLead(**fields)

    def members(self, tables: Sequence[object]) -> Iterator[TeamMember]:
        """Yield a member for each `[[members]]` table, with its valid values; other values become problems."""
        names: dict[str, str] = {}
        for index, table in enumerate(tables):
            place: TomlKeyPath = ("members", index)
            fields = self._reader.fields(place, table, MEMBER_KEYS)
            self._reader.require(place, fields, table, '"scout"', "name")
            if "name" in fields and self._is_name((*place, "name"), fields["name"], names):
                names[fields["name"].casefold()] = fields["name"]
            self._check_type((*place, "type"), fields.get("type", GENERAL))
            self._check_model((*place, "model"), fields.get("model"))
            plan = self._plan((*place, "plan_required"), fields.pop("plan_required", False))
            prompt = fields.pop("prompt", "").strip()
            yield TeamMember(**{"name": "", "type": GENERAL} | fields, prompt=prompt, plan=plan)

    def _is_name(self, place: TomlKeyPath, name: str, names: Mapping[str, str]) -> bool:
        folded = name.casefold()
        try:
            check_name(name)
        except NameInvalid as exc:
            self._reader.add_problem(place, f"name {format_value(name)} is not valid: {exc.reason}")
        else:
            if folded in RESERVED_NAMES:
                self._reader.add_problem(
                    place, f"name {format_value(name)} is taken: {RESERVED_NAMES[folded]}; choose another"
                )
            elif folded in names:
                by = f"another member is called {names[folded]}"
                self._reader.add_problem(place, f"name {format_value(name)} is taken: {by}; choose another")
            else:
                return True
        return False

    def _check_type(self, place: TomlKeyPath, name: str) -> None:
        if name == FORK and name not in self._agent_types:
            reason = "a member cannot be a fork, which needs a conversation; name an agent type"
            self._reader.add_problem(place, f"{place[-1]} is {format_value(name)}; {reason}, such as {GENERAL}")
        elif name not in self._agent_types:
            self._reader.add_problem(
                place, f"unknown agent type {format_value(name)}; {did_you_mean(name, self._agent_types)}"
            )

    def _check_model(self, place: TomlKeyPath, name: str | None) -> None:
        table = known_models()
        if name is None or table.find(name) is not None:
            return
        near = closest_match(name, [*table.models, *table.aliases])
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(table.aliases)}"
        self._reader.add_problem(place, f"{format_value(name)} is not a known model; {hint}")

    def _plan(self, place: TomlKeyPath, value: object) -> PlanPolicy | None:
        if isinstance(value, bool):
            return PlanPolicy() if value else None
        if value in ("lead", "human"):
            return PlanPolicy(by=value)
        if isinstance(value, dict):
            return self._rule(place, value)
        right = 'true, "lead", "human" or { paths = ["tests/**"] }'
        self._reader.add_problem(place, f"plan_required is {format_value(value)}; it should be {right}")
        return None

    def _rule(self, place: TomlKeyPath, table: Mapping[str, object]) -> PlanPolicy | None:
        for key in (key for key in table if key != "paths"):
            self._reader.add_problem((*place, key), f"unknown key {key!r}; plan_required can only have `paths`")
        try:
            paths: tuple[str, ...] = convert("paths", table.get("paths", ()), tuple[str, ...])
            for path in paths:
                PathPattern.parse(path)
        except ValueError as exc:
            self._reader.add_problem((*place, "paths"), str(exc))
            return None
        if not paths:
            self._reader.add_problem((*place, "paths"), 'plan_required needs patterns, such as `paths = ["tests/**"]`')
        return PlanPolicy(by="rule", paths=paths)


TASK_KEYS: KeyTypes = {"id": str, "subject": str, "description": str, "owner": str, "blocked_by": tuple[str, ...]}
REQUIRED = {"id": '"find"', "subject": '"Find the bug"'}
MAX_LENGTHS = {"subject": LONGEST_SUBJECT, "description": LONGEST_DESCRIPTION - 100}
"""Maximum characters of a task's texts. The owner is added to a description, so its limit here is lower."""


@attrs.frozen
class TaskParser:
    """Parser of the tasks in a team file; adds problems to its `TeamTableReader`."""

    _reader: TeamTableReader
    _members: Collection[str]

    def tasks(self, tables: Sequence[object]) -> tuple[TeamTask, ...]:
        """Parse the `[[tasks]]` tables; sort each task behind those that block it. Empty if the file has a problem."""
        read = [self._task(("tasks", index), table) for index, table in enumerate(tables)]
        places = {task.key: index for index, task in reversed(list(enumerate(read))) if task.key}
        for index, task in enumerate(read):
            if task.key and places[task.key] != index:
                self._reader.add_problem(
                    ("tasks", index, "id"), f"another task has the id {format_value(task.key)}; choose another"
                )
            for key in (key for key in task.blocked_by if key not in places):
                others = [other for other in places if other != task.key]
                reason = f"unknown task {format_value(key)}; {did_you_mean(key, others)}"
                self._reader.add_problem(("tasks", index, "blocked_by"), reason)
        by_key = {task.key: task for index, task in enumerate(read) if places.get(task.key) == index}
        for cycle in _cycles(by_key):
            path = " -> ".join([*cycle, cycle[0]])
            self._reader.add_problem(
                ("tasks", places[cycle[0]], "blocked_by"), f"tasks wait for each other: {path}; remove one dependency"
            )
        return tuple(_in_order(by_key)) if not self._reader.flaws else ()

    def _task(self, place: TomlKeyPath, table: object) -> TeamTask:
        fields: dict[str, Any] = self._reader.fields(place, table, TASK_KEYS)
        if "subject" in fields:  # a subject is one line wherever it is shown
            fields["subject"] = " ".join(fields["subject"].split())
        for key, example in REQUIRED.items():
            self._reader.require(place, fields, table, example, key)
        for key, longest in MAX_LENGTHS.items():
            if len(fields.get(key, "")) > longest:
                self._reader.add_problem(
                    (*place, key), f"{key} has {len(fields[key]):,} characters, over {longest:,}; shorten it"
                )
        known = [*self._members, MAIN]
        if (owner := fields.get("owner")) is not None and owner not in known:
            self._reader.add_problem(
                (*place, "owner"), f"unknown member {format_value(owner)}; {did_you_mean(owner, known)}"
            )
        key, blockers = fields.pop("id", ""), tuple(dict.fromkeys(fields.pop("blocked_by", ())))
        return TeamTask(**{"subject": ""} | fields, key=key, blocked_by=blockers)


def _cycles(tasks: Mapping[str, TeamTask]) -> Iterator[list[str]]:
    """Yield cycles of *tasks* that wait for each other, each as a list of keys in the order of waiting."""
    waits = {key: {other for other in task.blocked_by if other in tasks} for key, task in tasks.items()}
    while True:
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as exc:
            # CycleError gives the cycle in reverse order, with its first task at both ends.
            cycle = list(reversed(exc.args[1]))[:-1]
            begin = cycle.index(min(cycle, key=list(tasks).index))
            cycle = cycle[begin:] + cycle[:begin]
            yield cycle
            waits[cycle[0]].discard(cycle[1 % len(cycle)])
        else:
            return


def _in_order(tasks: Mapping[str, TeamTask]) -> Iterator[TeamTask]:
    """Yield *tasks*, which have no cycle, in the order of the file, but each one after the tasks that block it."""
    left = dict(tasks)
    while left:
        key = next(key for key, task in left.items() if not left.keys() & set(task.blocked_by))
        yield left.pop(key)


TEAM_KEYS: KeyTypes = {"name": str, "coordinator": bool, "lead": None, "members": None, "tasks": None}
EXAMPLE = 'begin with [[members]], name = "scout" and type = "explore"; docs/teams.md has more'


def load_team(path: Path, project: Path) -> TeamDefinition:
    """Read and check the team file *path* for a session in the directory *project*. Blocks on the disk.

    Raises `TeamInvalid` with all problems, and `ConfigInvalid` for an invalid table of models or invalid settings.
    """
    table, lines = _load(path)
    team = parse_team(table, lines, path, project)
    if flaws := [
        TeamFileProblem(path=path, line=lines.line_of(*place), reason=reason)
        for place, reason in _project_problems(team, project)
    ]:
        raise TeamInvalid.of(*flaws)
    return team


def parse_team(table: dict[str, Any], lines: TomlPositions, path: Path, project: Path) -> TeamDefinition:
    """Build the team from *table*, the TOML of file *path*; *lines* has the line of each key. Raises `TeamInvalid`."""
    reader = TeamTableReader(path, lines)
    fields = reader.fields((), table, TEAM_KEYS)
    is_coordinator = fields.get("coordinator", False)
    if not table:
        reader.add_problem((), f"the file has no team; {EXAMPLE}")
    member_parser = MemberParser(reader, load_definitions(project).by_name)
    lead = member_parser.lead(table["lead"], is_coordinator=is_coordinator) if "lead" in table else None
    members = tuple(member_parser.members(reader.tables("members", table.get("members", []))))
    task_parser = TaskParser(reader, [member.name for member in members if member.name])
    tasks = task_parser.tasks(reader.tables("tasks", table.get("tasks", [])))
    if reader.flaws:
        raise TeamInvalid.of(*reader.flaws)
    name = fields.get("name", path.stem)
    return TeamDefinition(name=name, coordinator=is_coordinator, lead=lead, members=members, tasks=tasks)


def _project_problems(team: TeamDefinition, project: Path) -> Iterator[tuple[TomlKeyPath, str]]:
    """Yield place and text of each problem with *project*: too many members for its settings, worktrees without git."""
    most = load_settings(project, {}, os.environ).agents.at_once - 1
    if len(team.members) > most:
        reason = f"the lead and {len(team.members)} members exceed the number of agents that may run at a time"
        yield ("members", most), f"{reason}: agents.at_once is {most + 1}; raise it, or remove members"
    if not (checkout_root(project) / ".git").exists():
        for index in (index for index, member in enumerate(team.members) if member.worktree):
            reason = f"a worktree needs a git repository, and {project} is not in one"
            yield ("members", index, "worktree"), f"{reason}: run `git init`, or remove the key"


def _load(path: Path) -> tuple[dict[str, Any], TomlPositions]:
    try:
        text = read_text(path)
    except ValueError as exc:  # a NUL in a path
        raise _unusable(path, f"the team file cannot be read: {exc}; correct the path") from exc
    if isinstance(text, FileProblem):
        raise _unusable(path, text.reason, text.line)
    text = text.removeprefix("\ufeff")  # some editors write a byte order mark
    try:
        return tomllib.loads(text, parse_float=Decimal), TomlPositions.parse(text)
    except tomllib.TOMLDecodeError as exc:
        where = re.search(r" \(at line (\d+), column \d+\)$", str(exc))
        line = int(where[1]) if where else text.count("\n", 0, len(text.rstrip())) + 1
        reason = str(exc)[: where.start()] if where else str(exc)
        raise _unusable(path, f"the line is invalid TOML: {reason[:1].lower()}{reason[1:]}; correct it", line) from exc
    except RecursionError as exc:
        raise _unusable(path, "the file is nested too deeply; use only the tables lead, members and tasks") from exc


def _unusable(path: Path, reason: str, line: int = 1) -> TeamInvalid:
    return TeamInvalid.of(TeamFileProblem(path=path, line=line, reason=reason))
