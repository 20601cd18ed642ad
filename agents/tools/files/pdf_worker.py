"""Worker process that extracts pages of a PDF. It imports nothing of ours.

It reads a `PdfRequest` from standard input and writes `PdfPages` to standard output, both as JSON in ASCII. Beside the
standard library it has pypdf, from where the order says it is.
"""

import base64
import io
import json
import logging
import os
import resource
import signal
import sys
from typing import Any, NamedTuple

LIFETIME = 60
"""Seconds after which it ends by itself, should whoever started it be gone."""
MEMORY = 2 * 1024**3
"""Bytes of address space."""
UNFORESEEN = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What a file that nobody can vouch for may make pypdf raise; it says no more than that the file is damaged."""


class PdfRequest(NamedTuple):
    """Which pages, of which file."""

    path: str
    packages: str
    """The directory in which pypdf is."""
    first: int | None
    """Counted from 1; None for all, if they are no more than *whole*."""
    last: int | None
    whole: int
    most: int
    """Bytes of the document that is made."""


class PdfPages(NamedTuple):
    """What came of it."""

    total: int = 0
    """Pages of the file."""
    first: int = 0
    last: int = 0
    data: str = ""
    """The pages as a document of their own, in base64; empty if there is none."""
    size: int = 0
    """Bytes of it."""
    problem: str | None = None
    """Why there is none: encrypted, damaged, long, beyond, heavy."""
    reason: str = ""
    """The same, as pypdf says it."""


def extract(order: PdfRequest) -> PdfPages:
    """The pages that *order* asks for, as a new document without anything else that the file may hold."""
    from pypdf import PdfReader  # noqa: PLC0415 - it is found only once the order is read
    from pypdf.errors import DependencyError, PyPdfError  # noqa: PLC0415

    try:
        with open(order.path, "rb", opener=_open_file) as file:
            reader: Any = PdfReader(file, strict=False)
            if reader.is_encrypted and not reader.decrypt(""):
                return PdfPages(problem="encrypted")
            return _extracted(reader, order)
    except DependencyError as exc:
        return PdfPages(problem="encrypted", reason=str(exc))
    except MemoryError:
        return PdfPages(problem="damaged", reason="it unpacks to more memory than there may be")
    except (PyPdfError, *UNFORESEEN) as exc:
        return PdfPages(problem="damaged", reason=str(exc) or type(exc).__name__)


def _extracted(reader: Any, order: PdfRequest) -> PdfPages:
    from pypdf import PdfWriter  # noqa: PLC0415

    total = len(reader.pages)
    if not total:
        return PdfPages(problem="damaged", reason="it has no pages")
    if order.first is None and total > order.whole:
        return PdfPages(total=total, problem="long")
    first, last = (1, total) if order.first is None else (order.first, order.last or order.first)
    if last > total:
        return PdfPages(total=total, problem="beyond")
    writer: Any = PdfWriter()
    for number in range(first - 1, last):
        writer.add_page(reader.pages[number])
    written = io.BytesIO()
    writer.write(written)
    content = written.getvalue()
    if len(content) > order.most:
        return PdfPages(total=total, first=first, last=last, size=len(content), problem="heavy")
    data = base64.b64encode(content).decode()
    return PdfPages(total=total, first=first, last=last, data=data, size=len(content))


def _open_file(path: str, flags: int) -> int:
    """Follows no link and waits for no pipe, though the file may have been replaced since it was looked at."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def main() -> None:
    """Do what standard input asks for."""
    signal.alarm(LIFETIME)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    order = PdfRequest(**json.load(sys.stdin))
    sys.path.append(order.packages)
    logging.disable(logging.CRITICAL)
    json.dump(extract(order)._asdict(), sys.stdout)


if __name__ == "__main__":
    main()
