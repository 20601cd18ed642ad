"""The errors of mail, sorted by who must act.

MailboxError
├── EnvelopeCorrupt     bytes that are not a valid envelope: they become a dead letter
├── SendRefused         the sender must act: nothing was stored
│   ├── NameInvalid         not a valid name of an agent, session or message, or not a valid address
│   ├── UnknownRecipient    no member has this name; the error suggests similar names
│   ├── RecipientEnded      the recipient has ended and accepts no mail
│   ├── MailboxFull         the recipient has too many pending messages; retry later
│   ├── MessageTooLarge     over the size limit of one message
│   ├── NotAllowed          this sender may not send this kind of message to that recipient
│   └── BridgeRefused       another session rejected the message, or its address cannot be used
├── MailboxBusy         the mailbox already has a reader
├── BridgeUnusable      no bridge can be opened here: the user must act (`transports.bridge.socket_path`)
├── NoHeldMessage       no held message has this id (`transports.bridge.held_mail`)
├── NotInOutbox         no message in the outbox has this id (`transports.bridge.outbox`)
├── RecipientActive     mail of a recipient that has not ended cannot be dead-lettered (`abandoned_mail`)
├── RosterFailed        the roster file cannot be read or written (`roster`)
├── MailboxFailed       disk or connection error: nothing was stored, or nothing was acknowledged
└── TaskError           errors of the task list; `coterie.mailbox.tasks.errors` draws their tree
"""

from pathlib import Path

import attrs


class MailboxError(Exception):
    """Base of all errors that `coterie.mailbox` raises on purpose."""


@attrs.define(eq=False)
class PathError(MailboxError):
    """Base of the errors about one file or directory."""

    path: Path
    reason: str
    """Problem and, if there is one, its solution, in one line."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@attrs.define(eq=False)
class EnvelopeCorrupt(MailboxError):
    """Bytes that cannot be decoded as an envelope."""

    reason: str

    def __str__(self) -> str:
        return f"not an envelope: {self.reason}"


class SendRefused(MailboxError):
    """Rejection of a message, which is not stored, or of a name. A retry fails unless the recipient's state changes."""


@attrs.define(eq=False)
class NameInvalid(SendRefused):
    """A text is not a valid name of an agent, session or message, or not a valid address."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name[:100]!r} is not a name: {self.reason}"


@attrs.define(eq=False)
class UnknownRecipient(SendRefused):
    """No member of the session has this name."""

    name: str
    nearest: tuple[str, ...]
    """Similar names, best match first."""
    known: tuple[str, ...]
    """All names on the roster."""

    def __str__(self) -> str:
        if self.nearest:
            return f"there is no {self.name!r}; did you mean {' or '.join(self.nearest)}?"
        return f"there is no {self.name!r}; known names: {', '.join(self.known) or 'none'}"


@attrs.define(eq=False)
class RecipientEnded(SendRefused):
    """The recipient has ended and accepts no mail."""

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name!r} has ended (start {self.incarnation}) and takes no more mail"


@attrs.define(eq=False)
class MailboxFull(SendRefused):
    """No room in the recipient's mailbox, the held mail or the outbox: a limit of messages or of bytes is reached."""

    name: str
    waiting: int
    limit: int
    unit: str
    """Unit of `waiting` and `limit`: messages or bytes."""

    def __str__(self) -> str:
        return f"the mailbox of {self.name!r} is full: {self.waiting:,} of {self.limit:,} {self.unit}; try again later"


@attrs.define(eq=False)
class MessageTooLarge(SendRefused):
    """A message is larger than the size limit."""

    size: int
    limit: int

    def __str__(self) -> str:
        return f"the message has {self.size:,} bytes; the limit is {self.limit:,}; put the text into a file and name it"


@attrs.define(eq=False)
class NotAllowed(SendRefused):
    """A message is not allowed: its kind does not suit its sender, recipient or origin, or its body is invalid."""

    sender: str
    recipient: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sender!r} may not send {self.kind} to {self.recipient!r}: {self.reason}"


@attrs.define(eq=False)
class BridgeRefused(SendRefused):
    """Another session rejected a message, or no message can be sent to its address."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} rejected the message: {self.reason}"


@attrs.define(eq=False)
class MailboxBusy(MailboxError):
    """A mailbox already has its one reader, or another process is forwarding the messages in the outbox."""

    name: str

    def __str__(self) -> str:
        return f"the mailbox of {self.name!r} already has a reader"


@attrs.define(eq=False)
class MailboxFailed(MailboxError):
    """Disk or connection error: a mailbox cannot be read, or a message or an acknowledgement was not stored."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"the mailbox of {self.name!r}: {self.reason}"
