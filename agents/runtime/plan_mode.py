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

NOT_ASKED = "Nobody has asked you for a plan, and nobody judges one: begin."
APPROVED_BEFORE = PlanDecision(approve=True, by="", feedback="It was approved before.")


@attrs.define(eq=False, kw_only=True)
class PlanMode:
    """How one agent gets from planning to doing. It is a `PlanApprover`, for the tool that submits the plan."""

    policy: PlanPolicy | None
    is_approved: bool
    """Whether that is past: an earlier start had its plan approved, as the root knows."""
    authority: Authorizer
    approver: PlanApprover
    report_activity: Callable[[Activity, str], None]
    """Says what the agent does. Raises `ControlLost`."""
    _granted: Permissions = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._granted = _granted(self.authority.permissions, self.policy)
        self.authority.permissions = self._granted if self._is_free else _only_reading(self.authority.permissions)

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """As `PlanApprover.submit`; on a yes the agent's permissions are its own from then on. Raises `ToolFailed`."""
        if self.policy is None:
            raise ToolFailed(NOT_ASKED)
        if self.is_approved:
            return APPROVED_BEFORE
        self.report_activity("plan_pending", _first_line(plan))
        try:
            judgement = await self.approver.submit(plan, files)
        finally:
            with contextlib.suppress(ControlLost):  # whoever listens on the line finds out
                self.report_activity("running", "")
        if judgement.approve:
            self.is_approved = True
            self.authority.permissions = self._granted
        return judgement

    @property
    def _is_free(self) -> bool:
        return self.policy is None or self.is_approved


def _only_reading(permissions: Permissions) -> Permissions:
    return attrs.evolve(permissions, mode="plan")


def _granted(permissions: Permissions, policy: PlanPolicy | None) -> Permissions:
    """What the agent may do after a yes; after that of a rule no more than the rule could look at.

    A command may change any file, and so may an agent that is started: the first is denied here, the second may only
    read, as the root orders it.
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


def _first_line(plan: str) -> str:
    return next(iter(plan.strip().splitlines()), "")[:100]
