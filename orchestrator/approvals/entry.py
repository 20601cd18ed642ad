"""An approval in the memory of the root, and who waits for it."""

from typing import Self

import attrs
import trio

from coterie.orchestrator.approvals.record import Approval, Claim


@attrs.define(eq=False)
class Entry:
    """One approval, as it counts."""

    approval: Approval
    is_doubted: bool = False
    """Whether its file was changed by others: nobody can decide over it, and its agent has to ask anew.

    Under another id, as the lead has heard of this one already, and may have answered it.
    """
    is_announced: bool = False
    """Whether this root has told the lead of it."""
    heard_by: int | None = None
    """The start of the agent that was told what was decided."""
    is_decided: trio.Event = attrs.field(factory=trio.Event)

    @classmethod
    def restored(cls, approval: Approval, *, is_doubted: bool) -> Self:
        """What an earlier root has kept; as open, where somebody else has changed it."""
        if is_doubted:
            return cls(Approval(id=approval.id, claim=approval.claim, asked_at=approval.asked_at), is_doubted=True)
        # Whether a yes to one call was used cannot be known any more, so it is.
        heard_by = approval.claim.incarnation if approval.claim.what == "permission" and not approval.is_open else None
        entry = cls(approval, heard_by=heard_by)
        if not approval.is_open:
            entry.is_decided.set()
        return entry

    def is_about(self, claim: Claim) -> bool:
        """Whether *claim* asks for the same, and what was asked for can be believed."""
        return not self.is_doubted and self.approval.claim.is_same(claim)

    def answers(self, claim: Claim) -> bool:
        """Whether what is, or will be, decided here is for *claim*, which it is about."""
        if self.approval.is_past or self.approval.state == "withdrawn":
            return False
        # A yes to one call is used up by whoever hears it; what was said of a plan is for a start that did not hear it.
        return self.heard_by is None or (claim.what == "plan" and self.heard_by != claim.incarnation)

    def gives_way_to(self, claim: Claim) -> bool:
        """Whether nobody can want this any more once its agent makes *claim*."""
        mine = self.approval.claim
        return mine.gives_way_to(claim) or (self.is_doubted and mine.what == claim.what)
