"""The SendMessage tool: sends a message to other agents and returns whether it was stored."""

from typing import Annotated, Any, get_args

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.mailbox.envelope import MessageId, MessageKind, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.router import OutgoingMessage, Router, SendResult
from coterie.suggestions import did_you_mean

_OF_THE_PROCESS = ("shutdown_response", "task_notification", "idle", "plan_approval_request")
"""Message types reserved for agent processes and the root (supervisor process): a model cannot know their contents."""
STRUCTURED = tuple(kind for kind in get_args(MessageKind) if kind not in ("message", *_OF_THE_PROCESS))
"""Values of `type` that a model may use in a message that is an object instead of a text."""


@attrs.frozen(kw_only=True)
class SendMessageInput:
    """Arguments of a call of the SendMessage tool, which sends a message to agents."""

    to: Annotated[str, "An agent's name, `main`, `*` for everyone, `uds:<path>` or `bridge:<session id>`."]
    message: Annotated[str | dict[str, Any], "Text, or an object with a `type`, such as `task_assignment`."]
    summary: Annotated[str | None, "Summary of the message, in 5 to 10 words."] = None


@attrs.frozen(kw_only=True)
class SendMessage(BuiltInTool, name="SendMessage", input_type=SendMessageInput, access="session"):
    """Tool with which the agent *sender* sends messages to other agents."""

    router: Router
    sender: Sender

    async def run(self, arguments: SendMessageInput, _workspace: Workspace) -> ToolResult:
        """Send the message; return each recipient's result. Raises `ToolFailed` if the one agent in `to` rejects it."""
        try:
            results = await self.router.send(self.sender, _draft(arguments))
        except MailboxError as exc:
            raise ToolFailed(f"The message was not sent: {exc}") from exc
        return ToolResult(text="; ".join(map(_result_text, results)) or "There is no other agent in this session.")


def _draft(arguments: SendMessageInput) -> OutgoingMessage:
    if isinstance(arguments.message, str):
        return OutgoingMessage(to=arguments.to, body=arguments.message, summary=arguments.summary)
    content = dict(arguments.message)
    kind, request = content.pop("type", None), content.pop("request_id", None)
    if kind not in STRUCTURED:
        raise ToolFailed(f"{kind!r} is not a known `type` of a message object; {did_you_mean(str(kind), STRUCTURED)}")
    return OutgoingMessage(
        to=arguments.to,
        body=msgspec.json.encode(content).decode(),
        kind=kind,
        summary=arguments.summary,
        in_reply_to=MessageId(request) if isinstance(request, str) else None,
    )


def _result_text(result: SendResult) -> str:
    if result.receipt is not None and result.receipt.transport == "control":
        return f"Accepted, and {result.recipient} is notified"
    if result.receipt is not None:
        return f"Stored for {result.recipient} as {result.receipt.id}"
    return f"Not sent to {result.recipient}: {result.refusal}"
