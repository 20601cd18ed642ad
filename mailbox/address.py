"""Addresses of messages, as people and models write them."""

import functools
import re
from pathlib import Path
from typing import NewType

import attrs

from coterie.mailbox.errors import NameInvalid

Name = NewType("Name", str)

MAIN = Name("main")
"""The lead of a session."""
USER = Name("user")
"""The human, who sends and has no mailbox: no agent can have this name."""
LONGEST_NAME = 64
RESERVED = frozenset({"bridge", "dead", "held", "outgoing"})
"""What lies beside the mailboxes of a session."""
SOCKET_PATH_LIMIT = 107
"""Bytes that the kernel takes for the path of a Unix socket."""

# Plain letters only: a name is a directory, and must not look like another one.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@attrs.frozen
class Everyone:
    """All agents of the session but the sender: `*`."""


@attrs.frozen
class Socket:
    """The session whose bridge is this socket: `uds:<path>`."""

    path: Path


@attrs.frozen
class OtherSession:
    """The session with this id: `bridge:<session id>`."""

    session: str


Address = Name | Everyone | Socket | OtherSession


@functools.lru_cache(maxsize=1024)  # two for every message that is read, of a few that come again and again
def check_name(text: str) -> Name:
    """*text* as a name. Raises `NameInvalid`."""
    if not text:
        raise NameInvalid(text, "it is empty")
    if len(text) > LONGEST_NAME:
        raise NameInvalid(text, f"it has {len(text)} characters, over {LONGEST_NAME}")
    if _NAME.fullmatch(text) is None:
        raise NameInvalid(text, "a name has letters a-z, digits, - and _, and begins with a letter or digit")
    if text.casefold() in RESERVED:
        raise NameInvalid(text, f"{', '.join(sorted(RESERVED))} are taken: mail of other kinds lies there")
    return Name(text)


def parse_address(text: str) -> Address:
    """Read `name`, `main`, `*`, `uds:<path>` or `bridge:<session id>`. Raises `NameInvalid`."""
    scheme, colon, rest = text.partition(":")
    if text == "*":
        return Everyone()
    if colon and scheme == "bridge":
        return OtherSession(check_name(rest))
    if colon and scheme == "uds":
        path = Path(rest)
        if not path.is_absolute() or "\0" in rest or len(rest.encode()) > SOCKET_PATH_LIMIT:
            raise NameInvalid(text, f"uds: takes an absolute path of at most {SOCKET_PATH_LIMIT} bytes")
        return Socket(path)
    return check_name(text)
