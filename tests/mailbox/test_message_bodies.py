"""Bodies of structured messages: round trips, and refusal of invalid ones."""

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.tool import Workspace, call_tool
from coterie.mailbox.envelope import MessageId, MessageKind, SenderKind
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.message_bodies import (
    BODIES,
    Idle,
    MessageBody,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownRequest,
    ShutdownResponse,
    TaskAssignment,
    TaskNotification,
)
from coterie.mailbox.router import OutgoingMessage
from tests.mailbox.test_router import RouterHarness, sender

EXAMPLES: list[MessageBody] = [
    ShutdownRequest(reason="done here", deadline=2.5),
    ShutdownResponse(accepted=False, reason="the deadline"),
    PlanApprovalRequest(plan="1. Read.\n2. Write."),
    PlanApprovalResponse(approve=False, feedback="No tests?"),
    PermissionRequest(tool="Bash", subject="git push", details={"timeout": "9"}, reason="it leaves the machine"),
    PermissionResponse(approve=True),
    TaskAssignment(task_id=7, subject="Mend the gate"),
    TaskNotification(status="completed", summary="Done.", result="Two bugs.", turns=3, tool_calls=2, cost_usd="0.01"),
    Idle(outcome="completed"),
]
BOSSES_KINDS = ("shutdown_request", "plan_approval_response", "permission_response", "task_assignment")


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: body.kind)
def test_body_survives_a_round_trip(body: MessageBody) -> None:
    assert type(body).from_body(body.to_body()) == body


def test_every_structured_kind_has_a_body() -> None:
    assert {body.kind for body in EXAMPLES} == set(BODIES) == set(get_args(MessageKind)) - {"message"}


@settings(deadline=None)  # the first body of each kind is slow to read
@given(st.sampled_from(sorted(BODIES)), st.text() | st.text(alphabet='{}[]":,0123456789etrufalsn \\'))
def test_invalid_body_raises_only_value_error(kind: MessageKind, text: str) -> None:
    try:
        body = BODIES[kind].from_body(text)
    except ValueError:
        return
    assert BODIES[kind].from_body(body.to_body()) == body


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("shutdown_request", "please stop"),
        ("shutdown_request", "[]"),
        ("shutdown_request", "{} {}"),
        ("shutdown_request", '{"deadline": -1}'),
        ("shutdown_request", '{"deadline": "soon"}'),
        ("shutdown_request", '{"deadline": NaN}'),
        ("shutdown_request", '{"dead_line": 3}'),
        ("shutdown_response", "{}"),
        ("plan_approval_request", "{}"),
        ("plan_approval_response", '{"feedback": "fine"}'),
        ("plan_approval_response", '{"approve": "yes"}'),
        ("permission_request", '{"subject": "git push"}'),
        ("permission_response", '{"approve": 1}'),
        ("task_assignment", '{"subject": "Mend it"}'),
        ("task_assignment", '{"task_id": 0}'),
        ("idle", '{"outcome": 3}'),
        ("idle", "\ud800"),
        ("idle", "[" * 100_000),
    ],
)
async def test_body_that_does_not_fit_its_kind_is_refused(kind: MessageKind, body: str) -> None:
    harness = RouterHarness()
    who: SenderKind = "lead" if kind in BOSSES_KINDS else "peer"
    draft = OutgoingMessage(to="scout", body=body, kind=kind, in_reply_to=MessageId("r"))
    with pytest.raises(NotAllowed, match="its body is not valid for this kind"):
        await harness.router.send(sender("main", who), draft)
    assert await harness.received("scout") == []


@pytest.mark.parametrize("message", [{"type": "shutdown_response", "accepted": True}, {"type": "idle"}])
async def test_model_cannot_send_shutdown_responses_or_idle_notices(tmp_path: Path, message: dict[str, Any]) -> None:
    harness = RouterHarness()
    tool = SendMessage(router=harness.router, sender=sender("scout", "peer"))
    workspace = Workspace(root=tmp_path, scratch=tmp_path)
    arguments = {"to": "main", "message": message | {"request_id": "r"}}
    result = await call_tool({"SendMessage": tool}, "SendMessage", arguments, workspace)
    assert result.is_error
    assert "is not a known `type`" in result.text
    assert await harness.received("main") == []
