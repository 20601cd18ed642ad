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
            raise ValueError("the JSON of the message body is nested too deeply; use fewer levels") from exc


class ShutdownRequest(MessageBody, frozen=True):
    """Request that the recipient finishes its current work and ends."""

    kind: ClassVar[MessageKind] = "shutdown_request"
    reason: str = ""
    deadline: Annotated[float, msgspec.Meta(ge=0)] = GRACE
    """Seconds after receipt at which work that is still running is interrupted."""


class ShutdownResponse(MessageBody, frozen=True):
    """Reply to a shutdown request of another agent: the agent that sends it has stopped its work and ends now."""

    kind: ClassVar[MessageKind] = "shutdown_response"
    accepted: bool
    """False if the agent's last run was interrupted, such as at the deadline; True if the run ended otherwise."""
    reason: str = ""
    """State of the agent's work when it stopped, such as "it has wrapped up"."""


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
    """Other relevant arguments of the tool call, by name."""
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

    The subagent sends it before it ends. If its process dies or is killed before, the root (supervisor) sends it.
    """

    kind: ClassVar[MessageKind] = "task_notification"
    status: Literal["completed", "failed", "killed", "blocked"]
    summary: str
    """Outcome of the task, such as "A model call failed.", with the error if there is one."""
    result: str = ""
    """Text of the subagent's last reply."""
    turns: Annotated[int, msgspec.Meta(ge=0)] = 0
    tool_calls: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of tool calls of the subagent; with 0, its result may not be based on any check."""
    cost_usd: str = "0"
    """Exact cost of the subagent's run in US dollars, as a decimal number."""
    agent: str = ""
    """Name of the agent that had the task, if the root (supervisor) sends the report; empty: the sender had it."""


class Idle(MessageBody, frozen=True):
    """Notice to the parent of the sending agent that this agent has no work and waits for messages."""

    kind: ClassVar[MessageKind] = "idle"
    outcome: str | None = None
    """End reason of the agent's last run, such as `completed`; None if it had no run."""


BODIES: Mapping[MessageKind, type[MessageBody]] = {body.kind: body for body in MessageBody.__subclasses__()}
assert {"message", *BODIES} == set(get_args(MessageKind)), "every kind but plain text has its own body type"
