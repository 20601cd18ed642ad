"""Base classes of all messages between processes, and the frame that carries requests and replies."""

from typing import ClassVar, Generic, TypeVar

import msgspec

Reply = TypeVar("Reply")
Body = TypeVar("Body")


class WireMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="word"):
    """Base of all messages. Both ends have the same version, so an unknown message closes the connection."""


class WireRequest(WireMessage, Generic[Reply], frozen=True):
    """Base of messages that expect a *Reply*, a value that msgspec can encode."""

    runs_to_end: ClassVar[bool] = False
    """True if the other end continues with the request when the requester is cancelled."""


class RemoteError(msgspec.Struct, frozen=True, kw_only=True):
    """Error that a handler raised; the requester raises it again."""

    kind: str
    """Name of the error class."""
    fields: msgspec.Raw


class Frame(msgspec.Struct, Generic[Body], frozen=True, kw_only=True, omit_defaults=True):
    """One frame on a channel: a message, a request (`id`), a reply (`reply_to`) or a cancellation (`cancel`)."""

    body: Body | None = None
    """Content of a message or a request."""
    id: int | None = None
    """Number of the request; each end counts its own requests."""
    reply_to: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    """Result of a request, in a reply without an error."""
    error: RemoteError | None = None
    """Error of a refused request, in a reply."""
    cancel: int | None = None
    """Number of the request that the requester has cancelled."""
