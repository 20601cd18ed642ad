"""Rules for which sender may send which kind of message to which recipient."""

from collections.abc import Mapping

from coterie.mailbox.envelope import Envelope, MessageKind, Sender, SenderKind
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.message_bodies import BODIES

AUTHORITY: frozenset[MessageKind] = frozenset({"shutdown_request", "plan_approval_response", "permission_response"})
"""Kinds that stop the recipient or grant it something. They travel inside a process, or over a socket to the root,
because a file proves no authority."""
REFERRED: frozenset[MessageKind] = frozenset({"plan_approval_response"})
"""Kinds that the root checks if there is one: it holds the request, and identifies the sender by its socket."""
NEVER_WAKES: frozenset[MessageKind] = frozenset({"idle"})
"""Kinds of messages that wait for the recipient's next turn: that an agent is idle is not worth a model call."""

_SUPERIORS: frozenset[SenderKind] = frozenset({"human", "lead", "system"})
_SENDERS: Mapping[MessageKind, frozenset[SenderKind]] = {
    "shutdown_request": _SUPERIORS,
    "plan_approval_response": _SUPERIORS,
    "permission_response": _SUPERIORS,
    "task_assignment": _SUPERIORS,
    "shutdown_response": frozenset({"peer"}),
    "plan_approval_request": frozenset({"peer", "system"}),
    "permission_request": frozenset({"peer"}),
    "task_notification": frozenset({"peer", "system"}),
    "idle": frozenset({"peer"}),
}
"""Kinds that only some senders may use."""
_ANSWERS: frozenset[MessageKind] = frozenset({"shutdown_response", "plan_approval_response", "permission_response"})


def check_send(
    sender: Sender,
    recipient: str,
    kind: MessageKind,
    body: str,
    *,
    is_named: bool,
    is_answer: bool,
    is_referred: bool,
) -> None:
    """Raise `NotAllowed` unless *sender* may send this message.

    *is_named*: the message is addressed to one agent of this session by name. *is_answer*: it names the request that it
    answers. *is_referred*: the root decides whether the sender is allowed.
    """

    def refusal(reason: str) -> NotAllowed:
        return NotAllowed(sender.name, recipient, kind, reason)

    if kind == "message":
        return
    allowed = _SENDERS[kind]
    if sender.kind not in allowed and not is_referred:
        raise refusal(f"only {' or '.join(sorted(allowed))} may")
    if not is_named:
        raise refusal("it must be addressed to one agent of this session by name")
    if kind in _ANSWERS and not is_answer:
        raise refusal("it must name the request that it answers")
    if recipient == sender.name and not is_referred:
        raise refusal("an agent cannot approve its own request")
    try:
        BODIES[kind].from_body(body)
    except ValueError as exc:
        raise refusal(f"its body is not valid for this kind: {exc}") from exc


def has_authority(envelope: Envelope) -> bool:
    """True if the sender of *envelope* may send its kind. Checked again before the recipient acts on the message."""
    return envelope.kind == "message" or envelope.sender.kind in _SENDERS[envelope.kind]
