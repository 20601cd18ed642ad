"""The keys with which the mail of a session is signed: all are made of one secret, which is in memory alone."""

import hashlib
import secrets
from typing import Self

import attrs
import msgspec

from coterie.mailbox.envelope import Sender

SECRET_BYTES = 32
_PURPOSE = b"coterie mail"


@attrs.frozen
class SessionKeys:
    """The `Keys` of one run of a session: its root makes them, and gives them to its agents' processes.

    They keep out the model and its tools: what an agent writes into a mailbox by a shell is not signed. They do not
    keep out a hostile process of the same user, which can read them from the memory of another.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Those of a run that begins; nobody else has them, and no later run."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_hex(cls, secret: str) -> Self:
        """What `to_hex` gave."""
        return cls(bytes.fromhex(secret))

    def to_hex(self) -> str:
        """The secret, to be passed over a socket; never to be written, or given to a program that an agent starts."""
        return self._secret.hex()

    def key_of(self, sender: Sender) -> bytes:
        """As `Keys.key_of`. Of senders of other sessions, too: for what they send the root vouches."""
        whose = msgspec.json.encode((sender.session, sender.name, sender.incarnation))
        return hashlib.blake2b(whose, key=self._secret, person=_PURPOSE, digest_size=SECRET_BYTES).digest()
