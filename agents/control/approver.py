"""Plans on their way to whoever approves them: the root holds them open, behind the control socket."""

from collections.abc import Callable, Sequence

import attrs

from coterie.agents.approvals.judgement import Judgement
from coterie.agents.control.approval_words import PlanJudged, SubmitPlan, WithdrawPlan
from coterie.agents.control.questions import Questions
from coterie.agents.control.word import Word


@attrs.define(eq=False)
class RemoteApprover:
    """A `Judge`. Whoever reads the line passes the root's answers to `hear`."""

    _plans: Questions[PlanJudged]

    @classmethod
    def over(cls, say: Callable[[Word], None]) -> "RemoteApprover":
        """One that submits by *say*."""
        return cls(Questions(say))

    async def submit(self, plan: str, files: Sequence[str]) -> Judgement:
        """As `Judge.submit`. Raises `ControlLost`."""

        def word(call: int) -> SubmitPlan:
            return SubmitPlan(call=call, plan=plan, files=tuple(files))

        judged = await self._plans.ask(word, lambda call: WithdrawPlan(call=call))
        return Judgement(approve=judged.approve, by=judged.by, feedback=judged.feedback)

    def hear(self, answer: PlanJudged) -> None:
        """Let whoever waits go on."""
        self._plans.hear(answer)
