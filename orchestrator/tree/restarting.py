"""An agent whose process has crashed is started again from its transcript, a few times and after growing waits."""

import attrs

from coterie.mailbox.ids import MessageId, new_message_id
from coterie.orchestrator.tree.charge import Charge, Outcome
from coterie.orchestrator.tree.ordering import Order


@attrs.frozen(kw_only=True)
class Restarts:
    """How often one task may have its agent's process crash before it is given up."""

    limit: int = 2
    first_wait: float = 0.5
    """Seconds before the first new start; before each further one it is twice as long."""

    def wait_after(self, crashes: int) -> float | None:
        """Seconds to wait after so many crashes; None if there is no further start."""
        return None if crashes > self.limit else self.first_wait * 2 ** (crashes - 1)


NO_RESTARTS = Restarts(limit=0)


@attrs.define(eq=False)
class Attempts:
    """The starts that one task takes. Whichever of them reports, the report has the same id."""

    order: Order
    policy: Restarts
    report: MessageId = attrs.field(init=False)
    charge: Charge | None = None
    """The latest start; None before the first."""
    outcome: Outcome | None = None
    """What became of the latest that had a process."""
    crashes: int = 0
    _is_recorded: bool = False
    """Whether the task is in the transcript."""

    def __attrs_post_init__(self) -> None:
        self.report = self.order.report or new_message_id()

    @property
    def task(self) -> str:
        """What the next start is to be told: nothing, once the transcript has it."""
        return "" if self._is_recorded else self.order.task

    @property
    def is_done(self) -> bool:
        """Whether it has ended well."""
        return self.outcome is not None and self.outcome.end == "done"

    def begin(self, charge: Charge) -> None:
        """Another start."""
        self.charge = charge
        again = self.outcome and f"again, {self.crashes} of {self.policy.limit}: {self.outcome.words}"
        charge.change("starting", again or "")

    def end(self, charge: Charge) -> float | None:
        """The process of *charge* is reaped: seconds to wait before the next start, or None if this was the last."""
        self.outcome = charge.outcome()
        # Whatever is asked of the model was recorded before. Of one that died earlier nothing is known, and a task
        # that is told twice is better than none.
        self._is_recorded = self._is_recorded or charge.has_asked
        if not charge.has_crashed:
            return None
        self.crashes += 1
        wait = self.policy.wait_after(self.crashes)
        if wait is not None:
            charge.change(self.outcome.end, self.outcome.words)
        elif self.crashes > 1:
            self._explain(f"It was started {self.crashes} times.")
        return wait

    def give_up(self, reason: str) -> None:
        """There will be no further start, because of *reason*."""
        self._explain(f"It could not be started again: {reason}.")

    def stop(self, by: str) -> None:
        """Somebody has stopped it, whatever it was at."""
        self._explain(f"{by[:1].upper()}{by[1:]} stopped it.")

    def _explain(self, why: str) -> None:
        if self.outcome is not None:
            self.outcome = attrs.evolve(self.outcome, why=f"{why} {self.outcome.why}".rstrip())
