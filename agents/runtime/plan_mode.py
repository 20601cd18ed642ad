"""Plan mode: an agent may only read until its plan is approved."""

import contextlib
from collections.abc import Callable, Sequence

import attrs

from coterie.agents.errors import ControlLost, ToolFailed
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.plan_approval import PlanApprover, PlanDecision, PlanPolicy
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.root_link.messages import Activity
from coterie.agents.runtime.setup.built_in_tools import BUILT_IN

NOT_ASKED = "No plan was requested, and nothing reviews one: begin with the task."
APPROVED_BEFORE = PlanDecision(approve=True, by="", feedback="The plan was approved before.")


@attrs.define(eq=False, kw_only=True)
class PlanMode:
    """Plan mode of one agent: restricts its permissions and submits its plan.

    A `PlanApprover` for the ExitPlanMode tool.
    """

    policy: PlanPolicy | None
    is_approved: bool
    """True if the plan was approved, also if that happened in an earlier incarnation."""
    authority: Authorizer
    approver: PlanApprover
    report_activity: Callable[[Activity, str], None]
    """Reports the activity of the agent to the root. Raises `ControlLost`."""
    _after_approval: Permissions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        own = self.authority.permissions
        self._after_approval = _approved_permissions(own, self.policy)
        may_act = self.policy is None or self.is_approved
        self.authority.permissions = self._after_approval if may_act else attrs.evolve(own, mode="plan")

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Submit *plan* as `PlanApprover.submit`; an approval restores the permissions of the agent.

        Raises `ToolFailed`.
        """
        if self.policy is None:
            raise ToolFailed(NOT_ASKED)
        if self.is_approved:
            return APPROVED_BEFORE
        self.report_activity("plan_pending", next(iter(plan.strip().splitlines()), "")[:100])
        try:
            decision = await self.approver.submit(plan, files)
        finally:
            with contextlib.suppress(ControlLost):  # The task that receives from the root reports the lost connection.
                self.report_activity("running", "")
        if decision.approve:
            self.is_approved = True
            self.authority.permissions = self._after_approval
        return decision


def _approved_permissions(permissions: Permissions, policy: PlanPolicy | None) -> Permissions:
    """Return the permissions after an approval; if a rule approves, only those that the rule can check.

    A command may change any file, so commands are denied. A spawned agent could do so too; the root gives it read-only
    permissions.
    """
    if policy is None or policy.by != "rule":
        return permissions
    edits = [tool.name for tool in BUILT_IN if tool.access == "edit"]
    limit = RoleLimit(
        name="plan rule",
        reason=f"The rule that approved your plan lets you change only {', '.join(policy.paths)}, and run no command.",
        denied=frozenset(tool.name for tool in BUILT_IN if tool.access == "run"),
        only=tuple(Rule.parse(f"{tool}({path})", "the rule over plans") for tool in edits for path in policy.paths),
    )
    return attrs.evolve(permissions, limits=(*permissions.limits, limit))
