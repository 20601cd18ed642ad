"""Rules about kinds of messages: who may send each kind, by which route, and whether it wakes the recipient."""

from collections.abc import Mapping

from coterie.mailbox.envelope import Envelope, MessageKind, SenderKind

AUTHORITY: frozenset[MessageKind] = frozenset({"shutdown_request", "plan_approval_response", "permission_response"})
"""Kinds that stop the recipient or grant it something. They travel inside a process, or over a socket to the root,
because a file proves no authority."""
REFERRED: frozenset[MessageKind] = frozenset({"plan_approval_response"})
"""Kinds that the root checks if there is one: it holds the request, and identifies the sender by its socket."""
NEVER_WAKES: frozenset[MessageKind] = frozenset({"idle"})
"""Kinds of messages that wait for the recipient's next turn: that an agent is idle is not worth a model call."""

_SUPERIORS: frozenset[SenderKind] = frozenset({"human", "lead", "system"})
SENDERS: Mapping[MessageKind, frozenset[SenderKind]] = {
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
ANSWERS: frozenset[MessageKind] = frozenset({"shutdown_response", "plan_approval_response", "permission_response"})
"""Kinds that must name the request that they answer."""


def has_authority(envelope: Envelope) -> bool:
    """True if the sender of *envelope* may send a message of this kind; plain text is always allowed.

    The recipient checks this again before it acts on the message.
    """
    return envelope.kind == "message" or envelope.sender.kind in SENDERS[envelope.kind]
