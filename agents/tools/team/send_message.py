"""The SendMessage tool: a message to another agent, and a receipt."""

from pathlib import Path
from typing import Any, ClassVar, get_args

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.mailbox.envelope import MessageId, MessageKind, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.router import OutgoingMessage, Router, SendResult
from coterie.suggestions import did_you_mean

_OF_THE_PROCESS = ("shutdown_response", "task_notification", "idle", "plan_approval_request")
"""That an agent ends, what it came to, that it is idle or has a plan: its process or the root says so, who know."""
STRUCTURED = tuple(kind for kind in get_args(MessageKind) if kind not in ("message", *_OF_THE_PROCESS))
"""What a model may send besides text."""


@attrs.frozen(kw_only=True)
class SendMessageInput:
    """To whom, and what."""

    to: str = attrs.field(
        metadata=described("An agent's name, `main`, `*` for everyone, `uds:<path>` or `bridge:<session id>`.")
    )
    message: str | dict[str, Any] = attrs.field(
        metadata=described("Text, or an object whose `type` says what it is, as `task_assignment`.")
    )
    summary: str | None = attrs.field(default=None, metadata=described("What it is about, in 5 to 10 words."))


@attrs.frozen(kw_only=True)
class SendMessage:
    """Sends for one agent."""

    router: Router
    sender: Sender

    name: ClassVar = "SendMessage"
    description: ClassVar = tool_description("send_message")
    input_type: ClassVar = SendMessageInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, _arguments: SendMessageInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: SendMessageInput, _workspace: Workspace) -> ToolResult:
        """One line that says what is stored for whom."""
        try:
            posted = await self.router.send(self.sender, _draft(arguments))
        except MailboxError as exc:
            raise ToolFailed(f"The message was not sent: {exc}") from exc
        return ToolResult(text="; ".join(map(_line, posted)) or "There is nobody else in this session.")


def _draft(arguments: SendMessageInput) -> OutgoingMessage:
    if isinstance(arguments.message, str):
        return OutgoingMessage(to=arguments.to, body=arguments.message, summary=arguments.summary)
    content = dict(arguments.message)
    kind, request = content.pop("type", None), content.pop("request_id", None)
    if kind not in STRUCTURED:
        raise ToolFailed(
            f"An object needs a `type` that is known, and {kind!r} is not: {did_you_mean(str(kind), STRUCTURED)}"
        )
    return OutgoingMessage(
        to=arguments.to,
        body=msgspec.json.encode(content).decode(),
        kind=kind,
        summary=arguments.summary,
        in_reply_to=MessageId(request) if isinstance(request, str) else None,
    )


def _line(posted: SendResult) -> str:
    if posted.receipt is not None and posted.receipt.transport == "control":
        return f"It counts, and {posted.recipient} is told"
    if posted.receipt is not None:
        return f"Stored for {posted.recipient} as {posted.receipt.id}"
    return f"Not sent to {posted.recipient}: {posted.refusal}"
