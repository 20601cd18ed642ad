"""Where one agent's plans are brought before others, and its own decisions over those of others are heard."""

from collections.abc import Callable

import attrs
import trio

from coterie.agents.control.approval_words import DecidePlan, SubmitPlan, WithdrawPlan
from coterie.agents.control.word import Word
from coterie.agents.errors import ControlLost
from coterie.orchestrator.approvals.of_agent import AgentApprovals

PlanWord = SubmitPlan | WithdrawPlan | DecidePlan


@attrs.define(eq=False)
class PlanDesk:
    """Serves one start of one agent."""

    _say: Callable[[Word], None]
    _approvals: AgentApprovals | None
    """None where nobody judges."""
    _open: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)

    def heed(self, word: PlanWord, nursery: trio.Nursery) -> None:
        """Begin what *word* asks for, in *nursery*. Raises `ControlLost` where nobody judges."""
        if self._approvals is None:
            raise ControlLost("there are no approvals here")
        match word:
            case SubmitPlan():
                scope = self._open[word.call] = trio.CancelScope()
                nursery.start_soon(self._submit, self._approvals, word, scope)
            case WithdrawPlan() if word.call in self._open:  # else the judgement is on its way
                self._open[word.call].cancel()
            case DecidePlan():
                nursery.start_soon(self._decide, self._approvals, word)

    async def _submit(self, approvals: AgentApprovals, word: SubmitPlan, scope: trio.CancelScope) -> None:
        """Have a plan judged. It stays open if the agent dies: only its own word withdraws it."""
        try:
            with scope:
                self._say(await approvals.submit(word))
            if scope.cancelled_caught:
                await approvals.withdraw(word)
        finally:
            del self._open[word.call]

    async def _decide(self, approvals: AgentApprovals, word: DecidePlan) -> None:
        self._say(await approvals.decide(word))
