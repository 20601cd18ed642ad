"""Base classes of all messages between the processes of a session, and the frame in which they are sent."""

from typing import ClassVar, Generic, TypeVar

import msgspec

Reply = TypeVar("Reply")
Body = TypeVar("Body")


class WireMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="word"):
    """Base class of messages between processes of one Coterie version; an unknown message ends the connection."""


class WireRequest(WireMessage, Generic[Reply], frozen=True):
    """Base class of messages that expect a reply of the type *Reply*, which msgspec must be able to encode."""

    runs_to_end: ClassVar[bool] = False
    """True if the receiver carries out the request to its end even if the requester cancels it."""


class RemoteError(msgspec.Struct, frozen=True, kw_only=True):
    """Error that the handler of a request raised, as a part of the reply; the requester raises it again."""

    kind: str
    """Name of the error class, a key of `REMOTE_ERRORS`."""
    fields: msgspec.Raw


class Frame(msgspec.Struct, Generic[Body], frozen=True, kw_only=True, omit_defaults=True):
    """One unit on a channel: a message, or a request, reply or cancellation, with `id`, `reply_to` or `cancel` set."""

    body: Body | None = None
    """The message or the request; None in a reply and in a cancellation."""
    id: int | None = None
    """Number of the request, counted by its sender; None if the frame is not a request."""
    reply_to: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    """In a reply without an error: the result of the request, as JSON."""
    error: RemoteError | None = None
    """In a reply: the error with which the handler refused the request; None if the request succeeded."""
    cancel: int | None = None
    """In a cancellation: the number of the earlier request that its sender cancels."""
