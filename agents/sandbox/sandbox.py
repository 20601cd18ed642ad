"""Sandbox of an agent's commands: the access to each path, and the command that enforces it."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.sandbox import backends
from coterie.agents.sandbox.backends import PathAccess

SandboxBackend = Literal["bubblewrap", "landlock"]
"""How the kernel is made to hold it."""
TEMPORARY_VARIABLE = "TMPDIR"


def _followed(path: Path) -> Path:
    return path.resolve()


def _resolved(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path.resolve() for path in paths))


@attrs.frozen(kw_only=True)
class Sandbox:
    """The wall around all commands of one agent. What is in none of its places can be read and not written."""

    way: SandboxBackend
    root: Path = attrs.field(converter=_followed)
    """The workspace, which may be written."""
    temporary: Path = attrs.field(converter=_followed)
    """The agent's own directory for what is temporary."""
    network: bool = False
    hidden: tuple[Path, ...] = attrs.field(default=(), converter=_resolved)
    """Neither read nor written."""
    readable: tuple[Path, ...] = attrs.field(default=(), converter=_resolved)
    """What may be read in places that are hidden."""
    writable: tuple[Path, ...] = attrs.field(default=(), converter=_resolved)
    """What may be written besides the workspace."""
    protected: tuple[Path, ...] = attrs.field(default=(), converter=_resolved)
    """What may only be read in places that may be written. Landlock cannot hold that."""
    opened: tuple[Path, ...] = attrs.field(default=(), converter=_resolved)
    """What the user lets be written, whatever else is said of the same place."""
    unwanted: tuple[Path, ...] = ()
    """Files that commands can make and must not leave."""
    asks_no_more: bool = False
    """Whether commands need no permission, as they are in here."""

    @property
    def description(self) -> str:
        """What holds for a command, for the model that wonders why it failed."""
        reach = "" if self.network else ", and there is no network"
        return f"[it ran in a sandbox: only the project directory and {TEMPORARY_VARIABLE} can be written{reach}]"

    @property
    def has_init_process(self) -> bool:
        """Whether the first process of a command is not its shell, but one that ends all of it by its own end."""
        return self.way == "bubblewrap"

    def command(self, program: Sequence[str], directory: Path) -> list[str]:
        """What to start instead of *program* for it to run in here, in *directory*. Looks at the disk."""
        views = self.views()
        if self.way == "bubblewrap":
            return backends.bubblewrap_command(program, directory, views, self.temporary, network=self.network)
        return backends.landlock_command(program, views, network=self.network)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """*environment* as a command in here needs it."""
        place = backends.TEMPORARY if self.way == "bubblewrap" else str(self.temporary)
        return {**environment, TEMPORARY_VARIABLE: place}

    def views(self) -> dict[Path, PathAccess]:
        """What may be done in each place that is there, the outer ones first."""
        views: dict[Path, PathAccess] = dict.fromkeys(self.hidden, "hidden")
        views |= dict.fromkeys(self.readable, "read")
        views |= dict.fromkeys((self.root, self.temporary, *self.writable), "write")
        # Where the workspace is the user's home, keys are both.
        views |= {path: "read" for path in self.protected if path not in self.hidden}
        views |= dict.fromkeys(self.opened, "write")
        outer_first = sorted(views, key=lambda path: len(path.parts))
        # What cannot be looked at is not there for commands either.
        return {path: views[path] for path in outer_first if os.path.exists(path)}  # noqa: PTH110 - `Path.exists` raises

    def remove_unwanted(self) -> None:
        """Take away what a command has left that it must not leave."""
        for path in self.unwanted:
            with contextlib.suppress(OSError):
                path.unlink()

    def problem(self) -> str | None:
        """Why the kernel could not hold it, whichever it is; None if nothing speaks against it."""
        if self.way == "bubblewrap":
            return None
        if pair := next(_inside_out(self.views()), None):
            inner, outer = pair
            return (
                f"Landlock cannot keep commands from {inner}, because it is inside {outer}, which they may write; "
                'work in another directory, or set sandbox = "bubblewrap"'
            )
        return None


def _inside_out(views: Mapping[Path, PathAccess]) -> Iterator[tuple[Path, Path]]:
    """Hidden places inside those that are written, each with the latter."""
    written = [path for path, view in views.items() if view == "write"]
    for path, view in views.items():
        if view == "hidden":
            yield from ((path, outer) for outer in written if path.is_relative_to(outer))
