"""Base classes of all messages between processes, and the frame that carries requests and replies."""

from typing import ClassVar, Generic, TypeVar

import msgspec

Reply = TypeVar("Reply")
Body = TypeVar("Body")


class WireMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="word"):
    """Base of all messages. A message that the other end does not know ends the connection: both have one version."""


class WireRequest(WireMessage, Generic[Reply], frozen=True):
    """Base of messages that are answered by a *Reply*, a value that msgspec can encode."""

    runs_to_end: ClassVar[bool] = False
    """Whether the other end goes on with the request when the requester is cancelled."""


class RemoteError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that a handler raised, to be raised again where the request was made."""

    kind: str
    """The name of its class."""
    fields: msgspec.Raw


class Frame(msgspec.Struct, Generic[Body], frozen=True, kw_only=True, omit_defaults=True):
    """One frame on a channel: a message, a request (`id`), a reply (`reply_to`) or a cancellation (`cancel`)."""

    body: Body | None = None
    """Of a message and a request."""
    id: int | None = None
    """Names the request; each end counts its own."""
    reply_to: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    """Of a reply: the value, if there is no error."""
    error: RemoteError | None = None
    """Of a reply: the request was refused."""
    cancel: int | None = None
    """The request that nobody waits for any more."""
