"""Calls that are under way, on disk: what they came to can be said by their root alone, and it may be killed.

The next root books the most that each of them can have cost, so that a budget holds over any crash.
"""

from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record
from coterie.orchestrator.ledger.line import LedgerLine

UNDER_WAY = "calls.jsonl"
"""In the directory of a session, for as long as its root runs."""


@attrs.define(eq=False)
class CallsUnderWay:
    """The log of one root: a record when a call begins, and one when it is over."""

    _appender: Appender

    @classmethod
    def open(cls, path: Path) -> "CallsUnderWay":
        """Begin anew at *path*: what was there is in the ledger by now. Raises `OSError`."""
        path.unlink(missing_ok=True)
        return cls(Appender.open(path))

    def begin(self, call: int, most: LedgerLine) -> None:
        """The *call* of this number may be billed from now on, as *most* says. Raises `OSError`."""
        facts = {"call": call, "most": attrs.asdict(most)}
        self._appender.append(frame_record(msgspec.json.encode(facts)))

    def end(self, call: int) -> None:
        """It is over, and in the ledger if it was billed. Raises `OSError`."""
        self._appender.append(frame_record(msgspec.json.encode({"call": call})))

    def close(self) -> None:
        """Nothing is under way any more."""
        self._appender.close()
        self._appender.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_under_way(path: Path) -> tuple[LedgerLine, ...]:
    """The calls of a root that was killed, each at the most it can have cost; none without such a log.

    What a torn write left was never sent: a call begins when its record is written. Blocks; raises `OSError`.
    """
    if not path.exists():
        return ()
    calls: dict[int, LedgerLine] = {}
    for content in path.read_bytes().split(b"\n"):
        try:
            check_record(content)
            facts: dict[str, Any] = msgspec.json.decode(content)
            most = facts.get("most")
            if most is None:
                calls.pop(facts["call"], None)
            else:
                calls[facts["call"]] = msgspec.convert(most, LedgerLine)
        except ValueError:
            continue
    return tuple(calls.values())
