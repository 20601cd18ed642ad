"""Plan mode: an agent may only read until its plan (text about its intended work) is approved."""

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

NOT_ASKED = "No plan was requested from you, so you cannot submit one. Begin with the task."
APPROVED_BEFORE = PlanDecision(approve=True, by="", feedback="The plan was approved before.")


@attrs.define(eq=False, kw_only=True)
class PlanMode:
    """Plan mode of one agent: if a plan is required, the agent may only read until `submit` got its plan approved."""

    policy: PlanPolicy | None
    is_approved: bool
    """True if the plan was approved, in this process or before a restart of the agent."""
    authority: Authorizer
    approver: PlanApprover
    report_activity: Callable[[Activity, str], None]
    """Function that reports the agent's activity, such as `plan_pending`, to the root process. Raises `ControlLost`."""
    _after_approval: Permissions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        own = self.authority.permissions
        self._after_approval = _approved_permissions(own, self.policy)
        may_act = self.policy is None or self.is_approved
        self.authority.permissions = self._after_approval if may_act else attrs.evolve(own, mode="plan")

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Submit *plan*, which will change *files*, to the approver; return the decision. Approval ends the plan mode.

        Raises `ToolFailed` if no plan was requested from the agent. After an approval, later plans are not submitted.
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
    """Return the agent's permissions after its plan was approved: *permissions*, limited if a rule approves plans.

    The limit allows edits only of `policy.paths`, and no commands, because a command may change any file. Agents that
    this agent starts then get read-only permissions from the root process.
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
