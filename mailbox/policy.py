"""Rules for which sender may send which kind of message to which recipient."""

from collections.abc import Mapping

import attrs

from coterie.mailbox.envelope import Envelope, MessageKind, SenderKind
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.message_bodies import BODIES

AUTHORITY: frozenset[MessageKind] = frozenset({"shutdown_request", "plan_approval_response", "permission_response"})
"""Kinds that make somebody do, or be allowed, something. They travel inside a process, or by its socket to the root: a
file proves nothing."""
REFERRED: frozenset[MessageKind] = frozenset({"plan_approval_response"})
"""Kinds that the root judges, where there is one: it holds what they answer, and knows by the socket who sends them."""
NEVER_WAKES: frozenset[MessageKind] = frozenset({"idle"})
"""Kinds that wait for the next turn: nobody pays for a turn because somebody else has nothing to do."""

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
"""Kinds that not everybody may send."""
_ANSWERS: frozenset[MessageKind] = frozenset({"shutdown_response", "plan_approval_response", "permission_response"})


@attrs.frozen(kw_only=True)
class SendAttempt:
    """A message about to be sent, as far as policy looks at it."""

    sender: str
    sender_kind: SenderKind
    recipient: str
    kind: MessageKind
    body: str
    is_named: bool
    """Whether it is for one agent of this session, by name."""
    is_answer: bool
    """Whether it says to which message it answers."""
    is_referred: bool = False
    """Whether the root says who may send it."""


def check_send(post: SendAttempt) -> None:
    """Raise `NotAllowed` unless *post* may be sent."""
    if post.kind == "message":
        return
    allowed = _SENDERS[post.kind]
    if post.sender_kind not in allowed and not post.is_referred:
        raise _not_allowed(post, f"only {' or '.join(sorted(allowed))} may")
    if not post.is_named:
        raise _not_allowed(post, "it goes to one agent of this session, by name")
    if post.kind in _ANSWERS and not post.is_answer:
        raise _not_allowed(post, "it must name the request that it answers")
    if post.recipient == post.sender and not post.is_referred:
        raise _not_allowed(post, "nobody answers for themselves")
    _check_body(post)


def has_authority(envelope: Envelope) -> bool:
    """Whether who sent *envelope* may send its kind: asked again before it is acted upon, whoever let it pass."""
    return envelope.kind == "message" or envelope.sender.kind in _SENDERS[envelope.kind]


def _check_body(post: SendAttempt) -> None:
    try:
        BODIES[post.kind].from_body(post.body)
    except ValueError as exc:
        raise _not_allowed(post, f"its body is not what this kind says: {exc}") from exc


def _not_allowed(post: SendAttempt, reason: str) -> NotAllowed:
    return NotAllowed(sender=post.sender, recipient=post.recipient, kind=post.kind, reason=reason)
