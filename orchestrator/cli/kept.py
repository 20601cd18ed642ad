"""Facts that take long to find, kept in the user's cache directory with the files they were found in.

A shell that offers something when a user presses Tab must answer at once, and most of what it needs changes rarely.
What is kept can be lost at any time: it is found again.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from coterie import __version__
from coterie.files import replace_file


def kept(name: str, find: Callable[[], tuple[Any, Iterable[Path]]]) -> Any:
    """What *find* found, now or before: a value that JSON can hold, and the files and directories it depends on.

    It is found again when one of these is no longer as it was. Blocks on the disk.
    """
    path = _directory() / f"{name}.json"
    try:
        stored = msgspec.json.decode(path.read_bytes())
        if stored["version"] == __version__ and stored["stand"] == _stand(stored["paths"]):
            return stored["value"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never kept, or not as it was written: what is found now takes its place
    value, found_in = find()
    paths = [str(each) for each in found_in]
    content = msgspec.json.encode({"version": __version__, "paths": paths, "stand": _stand(paths), "value": value})
    try:
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        replace_file(path, content, durable=False, mode=0o600)
    except OSError:
        pass  # a user without a cache directory waits a little longer
    return value


def _directory() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()) / "coterie" / "completion"


def _stand(paths: Iterable[str]) -> str:
    """How the files at *paths* are now; a directory changes when something comes or goes in it."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        try:
            status = Path(path).stat()
            digest.update(f"{path} {status.st_mtime_ns} {status.st_size} {status.st_ino}\n".encode())
        except OSError:
            digest.update(f"{path} -\n".encode())
    return digest.hexdigest()
