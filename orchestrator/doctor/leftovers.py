"""Drafts of files whose writer was killed before it could put them in their place."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import trio

from coterie.orchestrator.doctor.finding import Finding, Remedy
from coterie.orchestrator.root_record import process_began

_DRAFT = re.compile(r"\.coterie-([0-9]+)-[0-9]+\.draft")


def draft_findings(directory: Path) -> Iterator[Finding]:
    """The drafts below *directory* that nobody is writing. What cannot be listed is passed over."""
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            match = _DRAFT.fullmatch(name)
            if match is not None and _is_abandoned(path, int(match[1])):
                yield Finding(
                    kind="draft",
                    where=str(path),
                    what=f"process {match[1]} ended while it wrote this; the file that it was for is as it was before",
                    remedy=Remedy(
                        words="remove it",
                        apply=partial(trio.to_thread.run_sync, partial(path.unlink, missing_ok=True)),
                    ),
                )


def is_draft(path: Path) -> bool:
    """Whether *path* has the name of a draft."""
    return _DRAFT.fullmatch(path.name) is not None


def _is_abandoned(path: Path, writer: int) -> bool:
    began = process_began(writer)
    if began is None:
        return path.exists()
    try:
        written = path.stat().st_mtime
    except FileNotFoundError:
        return False
    # A process that began later than the draft was written has only got the writer's number.
    return _booted() + began / os.sysconf("SC_CLK_TCK") > written + 1


def _booted() -> float:
    """When the machine was started, in seconds since 1970, to the second."""
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("btime ")))
