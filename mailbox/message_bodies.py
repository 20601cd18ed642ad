"""Bodies of structured messages: one frozen type for each message kind."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, get_args

import msgspec

from coterie.mailbox.envelope import MessageKind

GRACE = 30.0
"""Seconds that an agent has to end, where whoever asks it to does not say."""


class MessageBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all bodies. A member that is not known is an error: what makes somebody act is not half understood."""

    kind: ClassVar[MessageKind]

    def to_body(self) -> str:
        """The JSON object, for a message of this kind."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_body(cls, body: str) -> Self:
        """What `to_body` wrote. Raises `ValueError` with the reason, whatever *body* is."""
        try:
            return msgspec.json.decode(body, type=cls)
        except RecursionError as exc:
            raise ValueError("it is nested too deeply") from exc


class ShutdownRequest(MessageBody, frozen=True):
    """The recipient is to finish what it is at, and end."""

    kind: ClassVar[MessageKind] = "shutdown_request"
    reason: str = ""
    deadline: Annotated[float, msgspec.Meta(ge=0)] = GRACE
    """Seconds from when the agent gets it; what is under way by then is interrupted."""


class ShutdownResponse(MessageBody, frozen=True):
    """The agent has ended, or does so before it takes anything else up."""

    kind: ClassVar[MessageKind] = "shutdown_response"
    accepted: bool
    """Whether it came to an end by itself; if not, it was interrupted at the deadline."""
    reason: str = ""
    """What it had come to, in words."""


class PlanApprovalRequest(MessageBody, frozen=True):
    """A plan, for a yes before any of it is done."""

    kind: ClassVar[MessageKind] = "plan_approval_request"
    plan: str
    agent: str = ""
    """Whose plan it is, where somebody else sends it; empty for the sender's own."""
    files: tuple[str, ...] = ()
    """What it would change."""


class PlanApprovalResponse(MessageBody, frozen=True):
    """Yes, or what to plan otherwise."""

    kind: ClassVar[MessageKind] = "plan_approval_response"
    approve: bool
    feedback: str = ""


class PermissionRequest(MessageBody, frozen=True):
    """A call that the sender may not make by itself, for a yes."""

    kind: ClassVar[MessageKind] = "permission_request"
    tool: str
    subject: str = ""
    """The command, or the paths; otherwise nothing."""
    details: dict[str, str] = {}
    """The other arguments that matter, by name."""
    reason: str = ""
    """Why the call is not simply allowed."""


class PermissionResponse(MessageBody, frozen=True):
    """Yes, this call; or no, and why."""

    kind: ClassVar[MessageKind] = "permission_response"
    approve: bool
    reason: str = ""


class TaskAssignment(MessageBody, frozen=True):
    """A task of the list that the recipient is to take on."""

    kind: ClassVar[MessageKind] = "task_assignment"
    task_id: Annotated[int, msgspec.Meta(ge=1)]
    subject: str = ""


class TaskNotification(MessageBody, frozen=True):
    """What came of the task that a subagent was started for. It is stored before the subagent's process ends."""

    kind: ClassVar[MessageKind] = "task_notification"
    status: Literal["completed", "failed", "killed", "blocked"]
    summary: str
    """The outcome in one line."""
    result: str = ""
    """The text of the last reply."""
    turns: Annotated[int, msgspec.Meta(ge=0)] = 0
    tool_calls: Annotated[int, msgspec.Meta(ge=0)] = 0
    """A report that nothing was done for is to be doubted."""
    cost_usd: str = "0"
    """Exact, as a decimal number."""
    agent: str = ""
    """Who had the task, where the root tells it of one that could not; empty for the sender."""


class Idle(MessageBody, frozen=True):
    """The sender has nothing to do."""

    kind: ClassVar[MessageKind] = "idle"
    outcome: str | None = None
    """How its last run ended; None if it has not had one."""


BODIES: Mapping[MessageKind, type[MessageBody]] = {
    body.kind: body
    for body in (
        ShutdownRequest,
        ShutdownResponse,
        PlanApprovalRequest,
        PlanApprovalResponse,
        PermissionRequest,
        PermissionResponse,
        TaskAssignment,
        TaskNotification,
        Idle,
    )
}
assert {"message", *BODIES} == set(get_args(MessageKind)), "every kind but plain text has a body of its own"
