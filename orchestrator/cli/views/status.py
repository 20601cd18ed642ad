"""The status line of a run: where it stands and what it has cost so far."""

import time
from decimal import Decimal

import attrs

from coterie.agents.models import known_models
from coterie.agents.usage import Usage
from coterie.orchestrator.events.observed import ReplyRecorded

SEPARATOR = " | "


@attrs.define(eq=False)
class Status:
    """What the replies of a run add up to."""

    _model: str = ""
    _began: float = attrs.field(factory=time.monotonic)
    _turn: int = 0
    _usage: Usage = attrs.field(factory=Usage)
    _last: Usage = attrs.field(factory=Usage)
    _cost: Decimal = Decimal(0)

    def begin(self, model: str) -> None:
        """The run's model is *model*."""
        self._model = model

    def count(self, reply: ReplyRecorded) -> None:
        """Add one reply."""
        self._turn = reply.turn
        self._last = reply.usage
        self._usage += reply.usage
        self._cost += Decimal(reply.cost_usd)

    def line(self, width: int) -> str:
        """As many of the facts as fit in *width* columns, the most wanted first."""
        shown = ""
        for fact in self._facts():
            longer = f"{shown}{SEPARATOR}{fact}" if shown else fact
            if len(longer) > width:
                break
            shown = longer
        return shown

    def _facts(self) -> list[str]:
        facts = [f"{time.monotonic() - self._began:.0f} s"]
        if self._turn:
            share = 100 * self._usage.read / self._usage.prompt if self._usage.prompt else 0
            facts += [f"turn {self._turn}", f"${self._cost:.4f}"]
            facts += [f"{self._usage.prompt:,} tokens in, {share:.0f} % cached", f"{self._usage.output:,} out"]
        model = known_models().find(self._model)
        if model is not None and self._turn:
            facts.append(f"window {100 * self._last.total / model.window:.0f} %")
        return [*facts, self._model] if self._model else facts
