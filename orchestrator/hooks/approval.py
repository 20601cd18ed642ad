"""Which of the hooks that were found may run: a project's only once their very content was approved."""

from collections.abc import Iterable
from pathlib import Path

import attrs

from coterie.agents.hooks.hook import Hook
from coterie.agents.project import project_root
from coterie.orchestrator.approved_files import ApprovedContents
from coterie.orchestrator.hooks.sources import HookSource, counted


@attrs.frozen(kw_only=True)
class Holding:
    """What holds, and what would if the user approved it."""

    approved: tuple[HookSource, ...]
    waiting: tuple[HookSource, ...]

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Those that may run."""
        return tuple(hook for source in self.approved for hook in source.hooks)

    def notice(self) -> str | None:
        """That some do not run, and what to do about it; None if all do."""
        if not self.waiting:
            return None
        names = ", ".join(counted(list(self.waiting)))
        return f"not approved, so they do not run: {names}; `coterie hooks approve` shows them and approves"


def holding(directory: Path, sources: Iterable[HookSource]) -> Holding:
    """Which of *sources* hold for work in *directory*. Blocks; raises `ConfigInvalid` as the record does."""
    record = ApprovedContents.of(project_root(directory), "hooks")
    found = [source for source in sources if source.hooks]
    waiting = [source for source in found if source.owner == "project" and source.content not in record]
    return Holding(
        approved=tuple(source for source in found if source not in waiting),
        waiting=tuple(waiting),
    )


def approve(directory: Path, sources: Iterable[HookSource]) -> None:
    """Let the hooks of *sources* run as they are now. Blocks; raises as `ApprovedContents.approve` does."""
    ApprovedContents.of(project_root(directory), "hooks").approve(*(source.content for source in sources))
