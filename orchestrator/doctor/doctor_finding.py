"""Finding of the doctor, and the action that repairs it."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import attrs

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
    """What `--fix` does about a finding: nothing that was kept is lost by it."""

    description: str
    """What it does, as an order: `remove it`."""
    apply: Callable[[], Awaitable[None]] = attrs.field(eq=False, repr=False)
    """Do it; done twice it does no harm. Raises `RepairFailed`, `OSError` and `MailboxError`."""


@attrs.frozen(kw_only=True)
class DoctorFinding:
    """One thing that is not as it should be."""

    kind: FindingKind
    where: str
    """A path, or `process 123`."""
    what: str
    session: str | None = None
    remedy: RepairAction | None = None
    advice: str | None = None
    """Where there is no remedy: what the user can do."""
    is_harmless: bool = False
    """Whoever reads it passes over it: worth knowing, and no reason to act."""

    def to_mapping(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        facts = attrs.asdict(self, recurse=False)
        return {**facts, "remedy": None if self.remedy is None else self.remedy.description}


@attrs.define(eq=False)
class RepairFailed(Exception):
    """Things are not any more as they were found."""

    reason: str

    def __str__(self) -> str:
        return self.reason
