"""Rules about kinds of messages: who may send each kind, by which route, and whether it wakes the recipient."""

from collections.abc import Mapping

from coterie.mailbox.envelope import Envelope, MessageKind, SenderKind

AUTHORITY: frozenset[MessageKind] = frozenset({"shutdown_request", "plan_approval_response", "permission_response"})
"""Kinds that stop the recipient or grant it something. They are sent inside a process or over a socket to the root
(supervisor process), never through a file, because a file does not prove who wrote it."""
REFERRED: frozenset[MessageKind] = frozenset({"plan_approval_response"})
"""Kinds of messages that go to the root (supervisor), if it runs: it has the request, and checks the sender."""
NEVER_WAKES: frozenset[MessageKind] = frozenset({"idle"})
"""Kinds of messages that do not wake an idle recipient but wait for its next turn, to save a model call."""

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
"""Maps each kind of message, except plain text, to the kinds of senders that may send it."""
ANSWERS: frozenset[MessageKind] = frozenset({"shutdown_response", "plan_approval_response", "permission_response"})
"""Kinds of messages that must name the request that they answer, by its message id."""


def has_authority(envelope: Envelope) -> bool:
    """True if the sender of *envelope* may send a message of this kind; plain text is always allowed.

    An agent checks this again before it obeys a shutdown request.
    """
    return envelope.kind == "message" or envelope.sender.kind in SENDERS[envelope.kind]
