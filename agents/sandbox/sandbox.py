"""Sandbox of an agent's shell commands: the allowed access to each path, and the command line that enforces it."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from coterie.agents.sandbox import backends
from coterie.agents.sandbox.backends import PathAccess, SandboxBackend

TEMPORARY_VARIABLE = "TMPDIR"


def _resolved_path(path: Path) -> Path:
    return path.resolve()


def _resolved_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path.resolve() for path in paths))


@attrs.frozen(kw_only=True)
class Sandbox:
    """Access rules for all shell commands of one agent. A path that no rule names can be read but not written."""

    way: SandboxBackend
    root: Path = attrs.field(converter=_resolved_path)
    """Project directory or worktree of the agent; commands may write there."""
    temporary: Path = attrs.field(converter=_resolved_path)
    """Directory for temporary files of the agent's commands, which they see as `TMPDIR`; they may write there."""
    network: bool = False
    hidden: tuple[Path, ...] = attrs.field(default=(), converter=_resolved_paths)
    """Paths that commands can neither read nor write, such as files with keys."""
    readable: tuple[Path, ...] = attrs.field(default=(), converter=_resolved_paths)
    """Paths inside hidden directories that commands can read nevertheless."""
    writable: tuple[Path, ...] = attrs.field(default=(), converter=_resolved_paths)
    """Paths that commands may write, in addition to `root` and `temporary`."""
    protected: tuple[Path, ...] = attrs.field(default=(), converter=_resolved_paths)
    """Paths inside writable directories that commands can only read. Landlock cannot enforce this."""
    opened: tuple[Path, ...] = attrs.field(default=(), converter=_resolved_paths)
    """Paths that the user's settings make writable; this overrides every other rule for the same path."""
    unwanted: tuple[Path, ...] = ()
    """Files that no rule can stop commands from creating; they are deleted after each command instead."""
    asks_no_more: bool = False
    """True if commands in this sandbox run without asking the user for permission."""

    @property
    def description(self) -> str:
        """One line about the restrictions, which is added to the result of a failed command for the model."""
        places = f"the project directory and {TEMPORARY_VARIABLE}"
        reach = "" if self.network else ", and there is no network"
        return f"[the command ran in a sandbox: it can write only {places}{reach}]"

    @property
    def has_init_process(self) -> bool:
        """True if the first process of a command is not its shell but an init process, whose end kills all others."""
        return self.way == "bubblewrap"

    def command(self, program: Sequence[str], directory: Path) -> list[str]:
        """Return the command line that runs *program* in *directory* inside this sandbox. Reads the disk."""
        views = self.views()
        if self.way == "bubblewrap":
            return backends.bubblewrap_command(program, directory, views, self.temporary, network=self.network)
        return backends.landlock_command(program, views, network=self.network)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return *environment* with `TMPDIR` set to the temporary directory, by its path inside the sandbox."""
        place = backends.TEMPORARY if self.way == "bubblewrap" else str(self.temporary)
        return {**environment, TEMPORARY_VARIABLE: place}

    def views(self) -> dict[Path, PathAccess]:
        """Return the access (hidden, read, write) to each existing path with a rule, outer paths before inner ones."""
        views: dict[Path, PathAccess] = dict.fromkeys(self.hidden, "hidden")
        views |= dict.fromkeys(self.readable, "read")
        views |= dict.fromkeys((self.root, self.temporary, *self.writable), "write")
        # If the workspace is the user's home directory, files with keys are both protected and hidden.
        views |= {path: "read" for path in self.protected if path not in self.hidden}
        views |= dict.fromkeys(self.opened, "write")
        outer_first = sorted(views, key=lambda path: len(path.parts))
        # A path that this process cannot examine does not exist for commands either.
        return {path: views[path] for path in outer_first if os.path.exists(path)}  # noqa: PTH110 - `Path.exists` raises

    def remove_unwanted(self) -> None:
        """Delete the `unwanted` files that a command has created; ignore files that cannot be deleted."""
        for path in self.unwanted:
            with contextlib.suppress(OSError):
                path.unlink()

    def problem(self) -> str | None:
        """Return why the backend cannot enforce these rules, and what the user can do; None if it can enforce them."""
        if self.way == "bubblewrap":
            return None
        views = self.views()
        for inner in (path for path, view in views.items() if view == "hidden"):
            for outer in (path for path, view in views.items() if view == "write" and inner.is_relative_to(path)):
                return (
                    f"Landlock cannot hide {inner}, because it is inside {outer}, which commands may write; "
                    'work in another directory, or set sandbox = "bubblewrap"'
                )
        return None
