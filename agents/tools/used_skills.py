"""Which skills an agent has used: what a compaction must bring back."""

from collections.abc import Iterable

import attrs

from coterie.agents.conversation.records import UsedSkill

REMEMBERED = 100
"""Skills; of more, those used longest ago are forgotten."""


@attrs.define(eq=False)
class UsedSkills:
    """The skills that one agent has used, each as it was used last. Belongs to the task that runs the agent's tools."""

    _used: dict[str, UsedSkill] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[str, None] = attrs.field(factory=dict, init=False, repr=False)

    def note(self, used: UsedSkill) -> None:
        """The model has been shown this skill."""
        self._remember(used)
        self._undrained.pop(used.name, None)
        self._undrained[used.name] = None

    def known(self) -> list[UsedSkill]:
        """All of them, the one used last at the end."""
        return list(self._used.values())

    def drain(self) -> list[UsedSkill]:
        """Those noted since this was last asked, in their order."""
        drained = [self._used[name] for name in self._undrained if name in self._used]
        self._undrained.clear()
        return drained

    def restore(self, used: Iterable[UsedSkill]) -> None:
        """Take over what `drain` said in an earlier run."""
        for each in used:
            self._remember(each)

    def _remember(self, used: UsedSkill) -> None:
        self._used.pop(used.name, None)
        self._used[used.name] = used
        if len(self._used) > REMEMBERED:
            del self._used[next(iter(self._used))]
