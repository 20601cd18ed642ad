"""Rules for which sender may send which kind of message to which recipient."""

from collections.abc import Mapping

import attrs

from coterie.mailbox.envelope import Envelope, MessageKind, SenderKind
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.message_bodies import BODIES

AUTHORITY: frozenset[MessageKind] = frozenset({"shutdown_request", "plan_approval_response", "permission_response"})
"""Kinds that stop the recipient or grant it something. They travel inside a process, or over a socket to the root,
because a file proves no authority."""
REFERRED: frozenset[MessageKind] = frozenset({"plan_approval_response"})
"""Kinds that the root checks if there is one: it holds the request, and identifies the sender by its socket."""
NEVER_WAKES: frozenset[MessageKind] = frozenset({"idle"})
"""Kinds that wait for the next turn: an idle agent should not cost others a turn."""

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


@attrs.frozen(kw_only=True)
class SendAttempt:
    """Facts of a message about to be sent that the policy needs."""

    sender: str
    sender_kind: SenderKind
    recipient: str
    kind: MessageKind
    body: str
    is_named: bool
    """True if the message is addressed to one agent of this session by name."""
    is_answer: bool
    """True if the message names the request that it answers."""
    is_referred: bool = False
    """True if the root decides whether the sender is allowed."""


def check_send(attempt: SendAttempt) -> None:
    """Raise `NotAllowed` unless *attempt* may be sent."""
    if attempt.kind == "message":
        return
    allowed = _SENDERS[attempt.kind]
    if attempt.sender_kind not in allowed and not attempt.is_referred:
        raise _not_allowed(attempt, f"only {' or '.join(sorted(allowed))} may")
    if not attempt.is_named:
        raise _not_allowed(attempt, "it must be addressed to one agent of this session by name")
    if attempt.kind in _ANSWERS and not attempt.is_answer:
        raise _not_allowed(attempt, "it must name the request that it answers")
    if attempt.recipient == attempt.sender and not attempt.is_referred:
        raise _not_allowed(attempt, "an agent cannot approve its own request")
    try:
        BODIES[attempt.kind].from_body(attempt.body)
    except ValueError as exc:
        raise _not_allowed(attempt, f"its body is not valid for this kind: {exc}") from exc


def has_authority(envelope: Envelope) -> bool:
    """True if the sender of *envelope* may send its kind. Checked again before the recipient acts on the message."""
    return envelope.kind == "message" or envelope.sender.kind in _SENDERS[envelope.kind]


def _not_allowed(attempt: SendAttempt, reason: str) -> NotAllowed:
    return NotAllowed(sender=attempt.sender, recipient=attempt.recipient, kind=attempt.kind, reason=reason)
