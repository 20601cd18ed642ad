"""What a thinking block's signature says, written and read with the server's secret."""

import base64
import binascii
import hashlib
import hmac
from typing import Literal

import attrs

MAC_SIZE = 16

Kind = Literal["thinking", "omitted", "redacted"]
KINDS: tuple[Kind, ...] = ("thinking", "omitted", "redacted")
"""Omitted: thinking whose text was not shown. The order is part of the written form."""


@attrs.frozen(kw_only=True)
class Signature:
    """Which model thought, what, and behind which prefix."""

    kind: Kind
    model: str
    text_mac: bytes
    prefix_mac: bytes


def _key_from(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=32).digest()


@attrs.frozen
class SigningKey:
    """Writes signatures and reads only its own; equal secrets make equal keys."""

    _key: bytes = attrs.field(alias="secret", converter=_key_from, repr=False)

    def mac_of(self, text: str) -> bytes:
        """The MAC over a block's text."""
        return self._mac(b"text", text.encode())

    def prefix_mac(self) -> hashlib.blake2b:
        """A running MAC for the prefix of a conversation, with nothing in it yet."""
        return hashlib.blake2b(key=self._key, person=b"prefix", digest_size=MAC_SIZE)

    def write(self, signature: Signature) -> str:
        """*signature* in base64, sealed so that no byte of it can change."""
        said = (
            bytes([KINDS.index(signature.kind)]) + signature.text_mac + signature.prefix_mac + signature.model.encode()
        )
        return base64.b64encode(self._mac(b"seal", said) + said).decode()

    def read(self, text: str) -> Signature | None:
        """What *text* says, or None if it is not exactly what `write` gave."""
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        seal, said = raw[:MAC_SIZE], raw[MAC_SIZE:]
        if not hmac.compare_digest(seal, self._mac(b"seal", said)):
            return None
        signature = Signature(
            kind=KINDS[said[0]],
            text_mac=said[1 : 1 + MAC_SIZE],
            prefix_mac=said[1 + MAC_SIZE : 1 + 2 * MAC_SIZE],
            model=said[1 + 2 * MAC_SIZE :].decode(),
        )
        # Base64 has several spellings of the same bytes; only one was written.
        return signature if self.write(signature) == text else None

    def _mac(self, purpose: bytes, said: bytes) -> bytes:
        return hashlib.blake2b(said, key=self._key, person=purpose, digest_size=MAC_SIZE).digest()
