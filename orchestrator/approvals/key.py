"""The key with which a root signs what the next one must believe: it outlives the root, and agents may not write it."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Self

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.files import replace_file

KEYS = "keys"
"""In the user's own directory: a file for each session, that only its owner can read."""
KEY_BYTES = 32
_PURPOSE = b"coterie approvals\n"


@attrs.frozen
class ApprovalKey:
    """Tells what the root has written from what others have.

    It keeps out the model and its tools, as far as these keep to the session's directory. A hostile process of the same
    user can read it.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def of_session(cls, id_: str) -> Self:
        """That of the session, made if there is none. Blocks. Raises `ConfigInvalid` as `find` does, and `OSError`."""
        path = _path(id_)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, secrets.token_hex(KEY_BYTES).encode() + b"\n", mode=0o600)
        return cls.find(id_)

    @classmethod
    def find(cls, id_: str) -> Self:
        """That of the session. Blocks. Raises `ConfigInvalid` if there is none that can be used."""
        path = _path(id_)
        try:
            secret = bytes.fromhex(path.read_text().strip())
            is_private = os.stat(path).st_mode & 0o077 == 0  # noqa: PTH116 - beside the read, as one question
        except (OSError, ValueError) as exc:
            raise ConfigInvalid(str(path), f"cannot be read: {exc}") from exc
        if len(secret) != KEY_BYTES:
            raise ConfigInvalid(str(path), f"holds no key of {KEY_BYTES} bytes; without the file a new one is made")
        if not is_private:
            raise ConfigInvalid(str(path), "can be read by others; chmod 600 lets it be used")
        return cls(secret)

    def sign(self, content: bytes) -> str:
        """The MAC of *content*, in hex."""
        return hmac.new(self._secret, _PURPOSE + content, hashlib.sha256).hexdigest()

    def proves(self, content: bytes, mac: str) -> bool:
        """Whether *mac* was made of *content* with this key."""
        return hmac.compare_digest(self.sign(content).encode(), mac.encode(errors="replace"))


def _path(id_: str) -> Path:
    return home() / KEYS / id_
