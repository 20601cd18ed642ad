"""Addresses with which users and models name the recipient of a message."""

import functools
import re
from pathlib import Path
from typing import NewType

import attrs

from coterie.mailbox.errors import NameInvalid

Name = NewType("Name", str)

MAIN = Name("main")
"""Name of the lead (the first agent) of a session."""
USER = Name("user")
"""Name of the user, who sends mail but has no mailbox: no agent can have this name."""
LONGEST_NAME = 64
RESERVED = frozenset({"bridge", "dead", "held", "outgoing"})
"""Names that no agent may have: they are directories of a session's mail that are not mailboxes."""
SOCKET_PATH_LIMIT = 107
"""Longest path of a Unix socket that the kernel accepts, in bytes."""

# ASCII only: a name is a directory, and must not be confused with a look-alike.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@attrs.frozen
class Everyone:
    """The address `*`: all agents of the session that have not ended, except the sender."""


@attrs.frozen
class Socket:
    """The address `uds:<path>`: the lead (the first agent) of the session that listens on this Unix socket."""

    path: Path


@attrs.frozen
class OtherSession:
    """The address `bridge:<session id>`: the lead (the first agent) of the session with this id."""

    session: str


Address = Name | Everyone | Socket | OtherSession


@functools.lru_cache(maxsize=1024)  # called twice for every message that is read, with few different names
def check_name(text: str) -> Name:
    """Return *text* unchanged. Raises `NameInvalid` unless it is a valid name of an agent, session or message."""
    if not text:
        raise NameInvalid(text, "the name is empty; give the name of an agent, session or message")
    if len(text) > LONGEST_NAME:
        raise NameInvalid(text, f"a name has at most {LONGEST_NAME} characters, not {len(text)}; shorten it")
    if _NAME.fullmatch(text) is None:
        raise NameInvalid(text, "a name has A-Z, a-z, 0-9, - and _ only, and begins with a letter or digit; change it")
    if text.casefold() in RESERVED:
        raise NameInvalid(text, f"the names {', '.join(sorted(RESERVED))} are reserved; choose another name")
    return Name(text)


def parse_address(text: str) -> Address:
    """Parse `name`, `main`, `*`, `uds:<path>` or `bridge:<session id>`. Raises `NameInvalid` for any other text."""
    scheme, colon, rest = text.partition(":")
    if text == "*":
        return Everyone()
    if colon and scheme == "bridge":
        return OtherSession(check_name(rest))
    if colon and scheme == "uds":
        path = Path(rest)
        if not path.is_absolute() or "\0" in rest or len(rest.encode()) > SOCKET_PATH_LIMIT:
            raise NameInvalid(text, f"after uds:, give an absolute path of at most {SOCKET_PATH_LIMIT} bytes")
        return Socket(path)
    return check_name(text)
