"""The members of a team and its lead, as its file has them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.models import known_models
from coterie.agents.nearest import nearest, suggestion
from coterie.agents.permissions.path_pattern import PathPattern
from coterie.agents.spawning import FORK, GENERAL, MemoryScope, Process
from coterie.mailbox.address import MAIN, USER, check_name
from coterie.mailbox.errors import NameInvalid
from coterie.orchestrator.settings.values import Unfit, convert, shown
from coterie.orchestrator.teams.table_reading import Kinds, Notes
from coterie.orchestrator.teams.team import Lead, TeamMember
from coterie.orchestrator.teams.toml_lines import Place

LEAD: Kinds = {"agent": str, "model": str}
MEMBER: Kinds = {
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
ROOT = "root"
"""What the session's own process calls itself in mail and events."""
TAKEN: Mapping[str, str] = {MAIN: "it is the lead's", USER: "it is the human's", ROOT: "it is the session's own"}


@attrs.frozen
class Staff:
    """Reads who is in a team; what is wrong goes to the notes."""

    _notes: Notes
    _kinds: Collection[str]

    def lead(self, table: object, *, is_coordinator: bool) -> Lead:
        """The lead of *table*."""
        fields = self._notes.fields(("lead",), table, LEAD)
        if is_coordinator and "agent" in fields:
            reason = "a coordinator is a kind of its own: take either `coordinator = true` or this agent away"
            self._notes.tell(("lead", "agent"), reason)
        elif "agent" in fields:
            self._check_kind(("lead", "agent"), fields["agent"])
        self._check_model(("lead", "model"), fields.get("model"))
        return Lead(**fields)

    def members(self, tables: Sequence[object]) -> Iterator[TeamMember]:
        """Those of *tables*, as far as they can be read; each has a name that no other has."""
        names: dict[str, str] = {}
        for index, table in enumerate(tables):
            place: Place = ("members", index)
            fields = self._notes.fields(place, table, MEMBER)
            self._notes.require(place, fields, table, '"scout"', "name")
            if "name" in fields and self._is_name((*place, "name"), fields["name"], names):
                names[fields["name"].casefold()] = fields["name"]
            yield self._member(place, fields)

    def _member(self, place: Place, fields: Mapping[str, Any]) -> TeamMember:
        self._check_kind((*place, "type"), fields.get("type", GENERAL))
        self._check_model((*place, "model"), fields.get("model"))
        return TeamMember(
            **{"name": "", "type": GENERAL}
            | {key: value for key, value in fields.items() if key not in ("prompt", "plan_required")},
            prompt=fields.get("prompt", "").strip(),
            plan=self._plan((*place, "plan_required"), fields.get("plan_required", False)),
        )

    def _is_name(self, place: Place, name: str, names: Mapping[str, str]) -> bool:
        folded = name.casefold()
        try:
            check_name(name)
        except NameInvalid as exc:
            self._notes.tell(place, f"name {shown(name)} cannot be used: {exc.reason}")
        else:
            if folded in TAKEN:
                self._notes.tell(place, f"name {shown(name)} is taken: {TAKEN[folded]}; choose another")
            elif folded in names:
                by = f"another member is called {names[folded]}"
                self._notes.tell(place, f"name {shown(name)} is taken: {by}; choose another")
            else:
                return True
        return False

    def _check_kind(self, place: Place, name: str) -> None:
        if name == FORK and name not in self._kinds:
            reason = "a fork begins with a conversation, and a member without one: name a kind of agent"
            self._notes.tell(place, f"{place[-1]} is {shown(name)}; {reason}, as {GENERAL} is")
        elif name not in self._kinds:
            self._notes.tell(place, f"there is no kind of agent {shown(name)}; {suggestion(name, self._kinds)}")

    def _check_model(self, place: Place, name: str | None) -> None:
        table = known_models()
        if name is None or table.find(name) is not None:
            return
        near = nearest(name, [*table.models, *table.aliases])
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(table.aliases)}"
        self._notes.tell(place, f"{shown(name)} is not a known model; {hint}")

    def _plan(self, place: Place, value: object) -> PlanPolicy | None:
        if isinstance(value, bool):
            return PlanPolicy() if value else None
        if value in ("lead", "human"):
            return PlanPolicy(by=value)
        if isinstance(value, dict):
            return self._rule(place, value)
        right = 'true, "lead", "human" or { paths = ["tests/**"] }'
        self._notes.tell(place, f"plan_required is {shown(value)}; it should be {right}")
        return None

    def _rule(self, place: Place, table: Mapping[str, object]) -> PlanPolicy | None:
        for key in (key for key in table if key != "paths"):
            self._notes.tell((*place, key), f"there is no key {key!r} here; a rule has `paths` alone")
        try:
            paths: tuple[str, ...] = convert(table.get("paths", ()), tuple[str, ...])
            for path in paths:
                PathPattern.parse(path)
        except (Unfit, ValueError) as exc:
            self._notes.tell((*place, "paths"), f"paths {exc}")
            return None
        if not paths:
            self._notes.tell((*place, "paths"), 'a rule names files: `paths = ["tests/**"]`')
        return PlanPolicy(by="rule", paths=paths)
