"""The first tasks of a team, as its file has them: for whom they are, and which must be done before which."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import attrs

from coterie.agents.nearest import suggestion
from coterie.mailbox.address import MAIN
from coterie.mailbox.tasks.changes import LONGEST_DESCRIPTION, LONGEST_SUBJECT
from coterie.orchestrator.settings.values import shown
from coterie.orchestrator.teams.table_reading import Kinds, Notes
from coterie.orchestrator.teams.team import TeamTask
from coterie.orchestrator.teams.toml_lines import Place

TASK: Kinds = {"id": str, "subject": str, "description": str, "owner": str, "blocked_by": tuple[str, ...]}
REQUIRED = {"id": '"find"', "subject": '"Find the bug"'}
LONGEST = {"subject": LONGEST_SUBJECT, "description": LONGEST_DESCRIPTION - 100}
"""Characters; what else a description says on the list, whom the task is meant for, must fit as well."""


@attrs.frozen
class Agenda:
    """Reads what a team has to do; what is wrong goes to the notes."""

    _notes: Notes
    _members: Collection[str]

    def tasks(self, tables: Sequence[object]) -> tuple[TeamTask, ...]:
        """Those of *tables*, each behind those it waits for; as far as they can be read."""
        read = [self._task(("tasks", index), table) for index, table in enumerate(tables)]
        places = {task.key: index for index, task in reversed(list(enumerate(read))) if task.key}
        for index, task in enumerate(read):
            if task.key and places[task.key] != index:
                self._notes.tell(("tasks", index, "id"), f"there is another task {shown(task.key)}; choose another id")
            self._check_blockers(index, task, places)
        by_key = {task.key: task for index, task in enumerate(read) if places.get(task.key) == index}
        for cycle in _cycles(by_key):
            way = " -> ".join([*cycle, cycle[0]])
            self._notes.tell(
                ("tasks", places[cycle[0]], "blocked_by"), f"tasks wait for each other: {way}; take one of them away"
            )
        return tuple(_in_order(by_key)) if not self._notes.flaws else ()

    def _task(self, place: Place, table: object) -> TeamTask:
        fields: dict[str, Any] = self._notes.fields(place, table, TASK)
        if "subject" in fields:  # it is one line wherever it is shown
            fields["subject"] = " ".join(fields["subject"].split())
        for key, example in REQUIRED.items():
            self._notes.require(place, fields, table, example, key)
        for key, longest in LONGEST.items():
            if len(fields.get(key, "")) > longest:
                self._notes.tell((*place, key), f"{key} has {len(fields[key]):,} characters; it may have {longest:,}")
        known = [*self._members, MAIN]
        if (owner := fields.get("owner")) is not None and owner not in known:
            self._notes.tell((*place, "owner"), f"there is no member {shown(owner)}; {suggestion(owner, known)}")
        key, blockers = fields.pop("id", ""), tuple(dict.fromkeys(fields.pop("blocked_by", ())))
        return TeamTask(**{"subject": ""} | fields, key=key, blocked_by=blockers)

    def _check_blockers(self, index: int, task: TeamTask, known: Collection[str]) -> None:
        for key in task.blocked_by:
            if key not in known:
                others = [other for other in known if other != task.key]
                reason = f"there is no task {shown(key)} to wait for; {suggestion(key, others)}"
                self._notes.tell(("tasks", index, "blocked_by"), reason)


def _cycles(tasks: Mapping[str, TeamTask]) -> Iterator[list[str]]:
    """Tasks that wait for each other, each for the next and the last for the first; until no such ring is left."""
    waits = {key: {other for other in task.blocked_by if other in tasks} for key, task in tasks.items()}
    while True:
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as exc:
            # It gives the ring against the direction of waiting, with its first at both ends.
            ring = list(reversed(exc.args[1]))[:-1]
            begin = ring.index(min(ring, key=list(tasks).index))
            ring = ring[begin:] + ring[:begin]
            yield ring
            waits[ring[0]].discard(ring[1 % len(ring)])
        else:
            return


def _in_order(tasks: Mapping[str, TeamTask]) -> Iterator[TeamTask]:
    """In the order of the file, but each behind those it waits for."""
    left = dict(tasks)
    while left:
        key = next(key for key, task in left.items() if not left.keys() & set(task.blocked_by))
        yield left.pop(key)
