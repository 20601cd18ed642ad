"""Tests of the SendMessage tool: receipts, errors, structured messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.types import MODES, Mode
from coterie.agents.tools.team.send_message import SendMessage, SendMessageInput
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool, tool_definition
from tests.mailbox.test_router import RouterHarness, sender


async def send(mail: RouterHarness, tmp_path: Path, **arguments: Any) -> ToolResult:
    tool = SendMessage(router=mail.router, sender=sender())
    workspace = Workspace(root=tmp_path, scratch=tmp_path)
    return await call_tool({"SendMessage": tool}, "SendMessage", arguments, workspace)


async def test_result_has_receipt_for_each_recipient(tmp_path: Path) -> None:
    mail = RouterHarness()
    result = await send(mail, tmp_path, to="scout", message="Look.", summary="a look")
    [envelope] = await mail.received("scout")
    assert result.text == f"Stored for scout as {envelope.id}"
    assert (envelope.body, envelope.summary, envelope.kind) == ("Look.", "a look", "message")
    broadcast = await send(mail, tmp_path, to="*", message="Stop.")
    assert broadcast.text.startswith("Stored for scout as ")
    assert "; Stored for worker as " in broadcast.text


async def test_object_is_sent_with_its_type_and_references(tmp_path: Path) -> None:
    mail = RouterHarness()
    for message in (
        {"type": "task_assignment", "task_id": 7},
        {"type": "plan_approval_response", "request_id": "r1", "approve": True},
    ):
        assert not (await send(mail, tmp_path, to="scout", message=message)).is_error
    assigned, answer = await mail.received("scout")
    assert (assigned.kind, json.loads(assigned.body)) == ("task_assignment", {"task_id": 7})
    assert answer.in_reply_to == "r1"


@pytest.mark.parametrize("message", [{}, {"type": "task_assignmnt"}, {"type": "message"}, {"type": 3}])
async def test_object_of_unknown_type_is_refused_with_suggestion(tmp_path: Path, message: dict[str, Any]) -> None:
    mail = RouterHarness()
    result = await send(mail, tmp_path, to="scout", message=message)
    assert result.is_error
    assert "is not a known `type`" in result.text
    assert await mail.received("scout") == []


@pytest.mark.parametrize("mode", MODES)
def test_send_message_is_allowed_in_every_mode(workspace: Workspace, mode: Mode) -> None:
    tool = SendMessage(router=RouterHarness().router, sender=sender())
    arguments = SendMessageInput(to="scout", message="x")
    assert type(Permissions(mode=mode).evaluate(tool, arguments, workspace)).__name__ == "Allowed"


def test_schema_allows_text_or_object() -> None:
    schema = json.loads(tool_definition(SendMessage(router=RouterHarness().router, sender=sender())))["input_schema"]
    assert schema["properties"]["message"]["anyOf"] == [{"type": "string"}, {"type": "object"}]
