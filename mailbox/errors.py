"""The errors of mail, sorted by who must act.

MailboxError
├── EnvelopeCorrupt     bytes that are no envelope: they become a dead letter
├── SendRefused         the sender must act: nothing was stored
│   ├── NameInvalid         no mailbox can have this name
│   ├── UnknownRecipient    nobody has this name; the nearest ones are given
│   ├── RecipientEnded      the recipient takes no more mail
│   ├── MailboxFull         the recipient has too much waiting; try again later
│   ├── MessageTooLarge     over the limit of one message
│   ├── NotAllowed          this sender may not send this to that recipient
│   └── BridgeRefused       another session did not take it
├── MailboxBusy         the mailbox has a reader already
├── BridgeUnusable      no bridge can be opened here: the user must act (`transports.bridge.socket_path`)
├── NoHeldMessage       no message with this id is held (`transports.bridge.held_mail`)
├── NotInOutbox         no message with this id waits for another session (`transports.bridge.outbox`)
├── RecipientActive     whose mail was to be dead-lettered is there to read it (`abandoned_mail`)
├── RosterFailed        the file of the roster cannot be read or written (`roster`)
├── MailboxFailed       the disk, or the connection, refused: nothing was stored, or nothing was acknowledged
└── TaskError           the task list; `coterie.mailbox.tasks.errors` draws its tree
"""

import attrs


class MailboxError(Exception):
    """Base of everything `coterie.mailbox` raises on purpose."""


@attrs.define(eq=False)
class EnvelopeCorrupt(MailboxError):
    """Bytes that are not an envelope of ours."""

    reason: str

    def __str__(self) -> str:
        return f"not an envelope: {self.reason}"


class SendRefused(MailboxError):
    """A message was not stored, and would not be if it were sent again as it is."""


@attrs.define(eq=False)
class NameInvalid(SendRefused):
    """No agent can have this name."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name[:100]!r} is not a name: {self.reason}"


@attrs.define(eq=False)
class UnknownRecipient(SendRefused):
    """Nobody has this name."""

    name: str
    nearest: tuple[str, ...]
    """Names that resemble it, the best first."""
    known: tuple[str, ...]
    """All names there are."""

    def __str__(self) -> str:
        if self.nearest:
            return f"there is no {self.name!r}; did you mean {' or '.join(self.nearest)}?"
        return f"there is no {self.name!r}; there is {', '.join(self.known) or 'nobody'}"


@attrs.define(eq=False)
class RecipientEnded(SendRefused):
    """The recipient takes no more mail."""

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name!r} has ended (start {self.incarnation}) and takes no more mail"


@attrs.define(eq=False)
class MailboxFull(SendRefused):
    """The recipient has as much waiting as it may."""

    name: str
    waiting: int
    limit: int
    unit: str
    """messages or bytes."""

    def __str__(self) -> str:
        return f"the mailbox of {self.name!r} is full: {self.waiting:,} of {self.limit:,} {self.unit}; try again later"


@attrs.define(eq=False)
class MessageTooLarge(SendRefused):
    """A message over the limit."""

    size: int
    limit: int

    def __str__(self) -> str:
        return f"the message has {self.size:,} bytes, over the {self.limit:,} that one may have; put it into a file"


@attrs.define(eq=False)
class NotAllowed(SendRefused):
    """Somebody may not send what they tried to send."""

    sender: str
    recipient: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sender!r} may not send {self.kind} to {self.recipient!r}: {self.reason}"


@attrs.define(eq=False)
class BridgeRefused(SendRefused):
    """Another session did not take a message."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} did not take it: {self.reason}"


@attrs.define(eq=False)
class MailboxBusy(MailboxError):
    """A mailbox has one reader at a time, and has one."""

    name: str

    def __str__(self) -> str:
        return f"the mailbox of {self.name!r} is being read already"


@attrs.define(eq=False)
class MailboxFailed(MailboxError):
    """The disk or the connection refused; what was to be stored or acknowledged is not."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"the mailbox of {self.name!r}: {self.reason}"
