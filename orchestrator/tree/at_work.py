"""Who is run in a session, by name: what can be asked of them from outside, and who belongs to whom."""

import contextlib
import signal

import attrs

from coterie.agents.errors import ControlLost
from coterie.agents.spawning import SpawnRefused
from coterie.mailbox.envelope import Envelope
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.tree.charge import ENDS
from coterie.orchestrator.tree.tenure import NotAtWork, Tenure


@attrs.define(eq=False, kw_only=True)
class AtWork:
    """The agents of a session that somebody runs. Its methods are for tasks of the root, on its main thread."""

    tenures: dict[str, Tenure] = attrs.field(factory=dict, init=False)
    """Who is run, or is kept to be run again."""

    def tenure_of(self, name: str) -> Tenure:
        """That of *name*. Raises `NotAtWork`."""
        if name not in self.tenures:
            raise NotAtWork(name, tuple(self.tenures))
        return self.tenures[name]

    def descendants(self, name: str) -> list[str]:
        """Who is run, or kept, and was started by *name* or by one of those it started."""
        own = [child for child, tenure in self.tenures.items() if tenure.order.parent == name]
        return own + [below for child in own for below in self.descendants(child)]

    def is_ready(self, name: str) -> bool:
        """Whether *name*, which is run, has a process that can be the parent of others."""
        charge = self.tenures[name].charge
        if charge is None or charge.child is None or charge.child.has_ended():
            return False
        return charge.state in ("running", "waiting", "idle", "plan_pending")

    def interrupt(self, name: str) -> None:
        """End the turn that *name* is at; nothing happens if it has no process."""
        tenure = self.tenures.get(name)
        charge = None if tenure is None else tenure.charge
        if charge is not None and charge.child is not None:
            charge.is_dismissed = True
            charge.child.send_signal(signal.SIGTERM)

    def move_to_background(self, name: str, why: str = "") -> None:
        """Let whoever waits for *name*, which it started, go on; the report will come as mail. Raises `NotAtWork`.

        Nothing happens if nobody waits for it.
        """
        parent = self.tenures.get(self.tenure_of(name).order.parent or "")
        charge = None if parent is None else parent.charge
        if charge is not None and charge.desk is not None:
            with contextlib.suppress(ControlLost):  # it has ended, and waits for nobody
                charge.desk.release(name, why)

    def free_lead(self, name: str) -> None:
        """Let the lead hear its mail, should it wait for *name*, or for whom *name* was started by."""
        while (tenure := self.tenures.get(name)) is not None and tenure.order.parent is not None:
            if tenure.order.parent == MAIN:
                self.move_to_background(name, "a plan waits for your answer")
            name = tenure.order.parent

    async def stop(self, name: str, by: str = "the user") -> None:
        """Stop *name* and its subagents, as cancellation of `Supervisor.run_agent` does; no message takes it up again.

        Returns when none of them is left; its parent is told who stopped it. Raises `NotAtWork`.
        """
        tenure = self.tenure_of(name)
        tenure.stop(by)
        await tenure.is_over.wait()

    def ask_to_end(self, request: Envelope) -> None:
        """Hand *request* to the one start of an agent that it is for. Raises `NotAtWork` and `SpawnRefused`."""
        name, meant = request.recipient.name, request.recipient.incarnation
        charge = self.tenure_of(name).charge
        if charge is None or charge.desk is None or charge.state in ENDS:
            raise SpawnRefused(f"{name} has no process that could end; a message would take it up again")
        if charge.duty.incarnation != meant:
            raise SpawnRefused(f"it was for start {meant} of {name}, and start {charge.duty.incarnation} is at work")
        try:
            charge.desk.deliver(request)
        except ControlLost as exc:
            raise SpawnRefused(f"{name} cannot be reached: {exc}") from exc
