"""Landlock: commands that have given up rights, without namespaces; see `launch.py`, which gives them up."""

import ctypes
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.agents.sandbox import launch
from coterie.agents.sandbox.view import View

LEAST = 3
"""The version from which on a file cannot be emptied by one who may not write it."""


def version() -> int:
    """What the kernel offers; 0 for none."""
    found: int = ctypes.CDLL(None, use_errno=True).syscall(launch.CREATE_RULESET, None, 0, launch.ASK_VERSION)
    return max(0, found)


def is_known_machine() -> bool:
    """Whether the numbers of its system calls are known here."""
    return platform.machine() in launch.MACHINES


def command(program: Sequence[str], views: Mapping[Path, View], *, network: bool) -> list[str]:
    """What gives up all rights but those of *views* and then becomes *program*."""
    places = [word for path, view in views.items() for word in (f"--{view}", str(path))]
    # Without site, environment and the current directory there is nothing that others could put in its way.
    start = [sys.executable, "-I", "-S", launch.__file__]
    return [*start, *(["--network"] if network else []), *places, "--", *program]
