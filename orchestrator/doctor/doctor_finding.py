"""A problem found by `coterie doctor`, and the action that repairs it."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import attrs
import trio

FindingKind = Literal[
    "stray_process",
    "dead_socket",
    "interrupted_session",
    "left_mail",
    "damaged_record",
    "torn_record",
    "draft",
    "left_worktree",
    "kept_worktree",
    "bad_definition",
    "bad_skill",
    "bad_settings",
]


@attrs.frozen(kw_only=True)
class RepairAction:
    """Repair of a problem, performed for example by `coterie doctor --fix`. A repair never deletes recorded data."""

    description: str
    """Imperative description, such as `remove it`."""
    apply: Callable[[], Awaitable[None]] = attrs.field(eq=False, repr=False)
    """Perform the repair; idempotent. Raises `RepairFailed`, `OSError` and `MailboxError`."""


def blocking_repair(description: str, repair: Callable[..., None], *arguments: object) -> RepairAction:
    """Return the repair that calls the blocking function *repair* with *arguments* in a thread."""
    return RepairAction(description=description, apply=partial(trio.to_thread.run_sync, repair, *arguments))


@attrs.frozen(kw_only=True)
class DoctorFinding:
    """A problem that `coterie doctor` has found: its place, a description, and a repair or advice."""

    kind: FindingKind
    where: str
    """Location: a path, also with a line or byte number, or `process 123`."""
    what: str
    session: str | None = None
    remedy: RepairAction | None = None
    advice: str | None = None
    """Advice for the user if there is no automatic repair."""
    is_harmless: bool = False
    """True if no action is needed: readers ignore the damage, or a worktree is kept because it contains work."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the finding as a JSON object. The repair is represented by its description."""
        facts = attrs.asdict(self, recurse=False)
        return {**facts, "remedy": None if self.remedy is None else self.remedy.description}


@attrs.define(eq=False)
class RepairFailed(Exception):
    """A repair was not possible: the situation has changed, git failed, or a process could not be killed."""

    reason: str
