"""Kinds of agents that a rule means: `reviewer`, or `reviewer, tester`."""

import attrs

EXAMPLE = "Agent(reviewer)"


@attrs.frozen
class KindPattern:
    """Some kinds, by name."""

    kinds: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "KindPattern":
        """Read what stands between the brackets. Raises `ValueError`."""
        kinds = frozenset(kind.strip() for kind in text.split(","))
        if "" in kinds:
            raise ValueError("a rule for agents names their kinds, with a comma between two")
        return cls(kinds)

    def covers(self, kind: str) -> bool:
        """Whether an agent of this *kind* is meant."""
        return kind in self.kinds
