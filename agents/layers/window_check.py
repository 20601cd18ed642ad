"""Says when the context window fills, and lets no turn begin that could not end well."""

import attrs

from coterie.agents.agent import Agent
from coterie.agents.events import WindowFilling
from coterie.agents.outcome import EndReason

LEVELS = ("block", "compact", "warn")


@attrs.define(eq=False)
class CheckWindow:
    """Tells each threshold once, until the context has shrunk below it again."""

    _level: str | None = None

    async def prepare(self, agent: Agent) -> EndReason | None:
        """End the run at the last threshold."""
        tokens = agent.meter.tokens(agent.conversation)
        thresholds = attrs.asdict(agent.meter.thresholds)
        level = next((level for level in LEVELS if tokens >= thresholds[level]), None)
        if level is not None and level != self._level:
            agent.tell(WindowFilling(level=level, tokens=tokens, threshold=thresholds[level]))  # type: ignore[arg-type]  # one of the three
        self._level = level
        return "blocked" if level == "block" else None
