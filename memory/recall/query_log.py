"""Log of queries for which memories of a store were recalled; a dream (memory consolidation) repeats them as a test."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from coterie.clock import Clock
from coterie.files import Appender, check_record, frame_record, replace_file
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.confined_directory import open_confined
from coterie.memory.store.secret_scan import find_secrets
from coterie.memory.store.store_lock import HISTORY, open_history_directory

FILE = "queries.jsonl"
KEPT = 200
MOST = 2 * KEPT
"""Maximum number of records in the log file; one more record truncates the log to the newest `KEPT`."""
LONGEST = 500
"""Maximum length of a logged query, in characters; a longer query is cut."""
LARGEST = 4 * 1024 * 1024
"""Maximum number of bytes of the log file that are read, from its start."""


class _Query(msgspec.Struct):
    at: float
    query: str
    chosen: list[str]


_decoder = msgspec.json.Decoder(_Query)


def log_query(directory: Path, query: str, chosen: Sequence[str], clock: Clock) -> None:
    """Append *query* and *chosen*, the memories found for it, to the query log of the store in *directory*. Blocks.

    Does nothing if the store does not exist, or if the query contains a secret. If several processes truncate a long
    log concurrently, a query may be lost. Raises `OSError`, and `MemoryRefused` for a link in the path.
    """
    if find_secrets(query):
        return
    record = _Query(at=clock.now(), query=query[:LONGEST], chosen=list(chosen))
    line = frame_record(msgspec.json.encode(record))
    with open_confined(directory) as root:
        if root is None:
            return
        with open_history_directory(root, make=True) as history:
            path = directory / HISTORY / FILE
            assert history is not None
            with Appender.open(path, dir_fd=history) as file:
                file.append(line)
            lines = _lines(history)
            if len(lines) > MOST:
                content = b"".join(b"\n%s\n" % line for line in lines[-KEPT:])
                replace_file(path, content, durable=False, mode=0o600, dir_fd=history)


def read_queries(directory: Path) -> list[str]:
    """Return the newest `KEPT` logged queries of the store in *directory*, oldest first, each once. Blocks.

    Incomplete records are skipped; the list is empty if there is no log, or if it cannot be read.
    """
    try:
        with open_confined(directory) as root:
            if root is None:
                return []
            with open_history_directory(root) as history:
                lines = [] if history is None else _lines(history)
    except (OSError, MemoryRefused):
        return []
    queries = [_decoder.decode(line).query for line in lines[-KEPT:]]
    return list(dict.fromkeys(reversed(queries)))[::-1]


def _lines(history: int) -> list[bytes]:
    """Return the lines of the query log that are complete records; empty if there is no log. Raises `OSError`."""
    try:
        descriptor = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=history)
    except FileNotFoundError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        return [line for line in file.read(LARGEST).split(b"\n") if _is_whole(line)]


def _is_whole(line: bytes) -> bool:
    try:
        check_record(line)
        _decoder.decode(line)
    except ValueError:  # covers the errors of msgspec
        return False
    return True
