"""Which mail its sender wants an answer to, and which call of the agent is that answer."""

from collections.abc import Iterable, Mapping
from typing import Any

from coterie.agents.agent import Answer
from coterie.agents.conversation.records import OpenMail
from coterie.agents.layers.mail_words import message_text
from coterie.agents.tools.send_message import SendMessage
from coterie.agents.tools.tasks.claim import TaskClaim
from coterie.mailbox.address import Everyone, OtherSession, Socket, parse_address
from coterie.mailbox.envelope import Envelope, Kind
from coterie.mailbox.lifecycle import TaskAssignment

TOLD_AGAIN = 2_000
"""Bytes of a message that are told again after a compaction."""

_RESPONSES: Mapping[str, Kind] = {
    "plan_approval_request": "plan_approval_response",
    "permission_request": "permission_response",
}
"""Kinds that one kind alone answers."""
_FROM_AGENTS = ("lead", "peer")
"""The human is answered by what the model says, and the system wants no answer."""


def to_be_answered(envelopes: Iterable[Envelope]) -> list[OpenMail]:
    """Those that want an answer: words of other agents, requests, and tasks to take on."""
    return [_open(envelope) for envelope in envelopes if _wants_answer(envelope)]


def answered_by(answers: Iterable[Answer], open_mail: Mapping[str, OpenMail]) -> list[str]:
    """The ids of what the calls with these *answers* have answered; a call that failed answers nothing."""
    done = [answer for answer in answers if not answer.result.is_error]
    return [id_ for id_, mail in open_mail.items() if any(_is_answer(answer, mail) for answer in done)]


def _wants_answer(envelope: Envelope) -> bool:
    if envelope.kind == "message":
        return envelope.sender.kind in _FROM_AGENTS
    return envelope.kind == "task_assignment" or envelope.kind in _RESPONSES


def _open(envelope: Envelope) -> OpenMail:
    return OpenMail(
        id=envelope.id,
        sender=envelope.sender.name,
        session=envelope.sender.session,
        kind=envelope.kind,
        task=_task_of(envelope),
        text=message_text(envelope, TOLD_AGAIN),
    )


def _task_of(envelope: Envelope) -> int | None:
    try:
        return TaskAssignment.from_body(envelope.body).task_id if envelope.kind == "task_assignment" else None
    except ValueError:
        return None  # of another version: to be answered in words


def _is_answer(answer: Answer, mail: OpenMail) -> bool:
    match answer.tool:
        case SendMessage() as tool:
            return _is_answer_in_words(tool, answer.call["input"], mail)
        case TaskClaim():
            # Its result begins with the number, also where the call named none.
            return mail.task is not None and answer.result.text.startswith(f"{mail.task} ")
    return False


def _is_answer_in_words(tool: SendMessage, arguments: dict[str, Any], mail: OpenMail) -> bool:
    message = arguments["message"]
    if (response := _RESPONSES.get(mail.kind)) is not None:
        return isinstance(message, dict) and (message["type"], message.get("request_id")) == (response, mail.id)
    match parse_address(arguments["to"]):
        case Everyone():
            return mail.session == tool.sender.session
        case OtherSession(session):
            return mail.session == session
        case Socket():
            # Whose socket it is the path does not say.
            return mail.session != tool.sender.session
        case name:
            return (mail.session, mail.sender) == (tool.sender.session, name)
