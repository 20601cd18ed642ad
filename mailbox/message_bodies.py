"""Bodies of structured messages (requests, responses and notices): one frozen type for each message kind."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, get_args

import msgspec

from coterie.mailbox.envelope import MessageKind

GRACE = 30.0
"""Default number of seconds that an agent has to end after a shutdown request."""


class MessageBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the bodies of structured messages, which are JSON objects.

    An unknown field is an error, because a request that is only partly understood must not take effect.
    """

    kind: ClassVar[MessageKind]

    def to_body(self) -> str:
        """Encode the body as a JSON object."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_body(cls, body: str) -> Self:
        """Decode a body that `to_body` wrote. Raises `ValueError` with the reason for any other *body*."""
        try:
            return msgspec.json.decode(body, type=cls)
        except RecursionError as exc:
            raise ValueError("it is nested too deeply") from exc


class ShutdownRequest(MessageBody, frozen=True):
    """Request that the recipient finishes its current work and ends."""

    kind: ClassVar[MessageKind] = "shutdown_request"
    reason: str = ""
    deadline: Annotated[float, msgspec.Meta(ge=0)] = GRACE
    """Seconds after receipt; work still running then is interrupted."""


class ShutdownResponse(MessageBody, frozen=True):
    """Reply to a shutdown request: the sender has ended, or ends before it starts other work."""

    kind: ClassVar[MessageKind] = "shutdown_response"
    accepted: bool
    """True if the agent ended before the deadline; False if it was interrupted."""
    reason: str = ""
    """State of its work at the end, as text."""


class PlanApprovalRequest(MessageBody, frozen=True):
    """Request to approve a plan before it is carried out."""

    kind: ClassVar[MessageKind] = "plan_approval_request"
    plan: str
    agent: str = ""
    """Name of the agent whose plan it is; empty if that is the sender."""
    files: tuple[str, ...] = ()
    """Files that the plan would change."""


class PlanApprovalResponse(MessageBody, frozen=True):
    """Reply to a plan approval request: approval of the plan, or feedback for another plan."""

    kind: ClassVar[MessageKind] = "plan_approval_response"
    approve: bool
    feedback: str = ""


class PermissionRequest(MessageBody, frozen=True):
    """Request to approve a tool call that the sender may not make on its own."""

    kind: ClassVar[MessageKind] = "permission_request"
    tool: str
    subject: str = ""
    """Command or paths of the call; may be empty."""
    details: dict[str, str] = {}
    """Other relevant arguments, by name."""
    reason: str = ""
    """Reason why the call needs approval."""


class PermissionResponse(MessageBody, frozen=True):
    """Reply to a permission request: approval or refusal of one tool call."""

    kind: ClassVar[MessageKind] = "permission_response"
    approve: bool
    reason: str = ""


class TaskAssignment(MessageBody, frozen=True):
    """Notice that a task of the session's shared task list is assigned to the recipient."""

    kind: ClassVar[MessageKind] = "task_assignment"
    task_id: Annotated[int, msgspec.Meta(ge=1)]
    subject: str = ""


class TaskNotification(MessageBody, frozen=True):
    """Result of the task of a subagent, for the agent that started the subagent.

    The message is stored before the process of the subagent ends.
    """

    kind: ClassVar[MessageKind] = "task_notification"
    status: Literal["completed", "failed", "killed", "blocked"]
    summary: str
    """Outcome in one line."""
    result: str = ""
    """Text of the last reply."""
    turns: Annotated[int, msgspec.Meta(ge=0)] = 0
    tool_calls: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of tool calls; a report without any deserves doubt."""
    cost_usd: str = "0"
    """Exact cost as a decimal number."""
    agent: str = ""
    """Name of the agent that had the task, if the root reports for it; empty for the sender."""


class Idle(MessageBody, frozen=True):
    """Notice that the sending agent is idle."""

    kind: ClassVar[MessageKind] = "idle"
    outcome: str | None = None
    """Outcome of its last run; None if it had none."""


BODIES: Mapping[MessageKind, type[MessageBody]] = {body.kind: body for body in MessageBody.__subclasses__()}
assert {"message", *BODIES} == set(get_args(MessageKind)), "every kind but plain text has its own body type"
