"""Sandbox of an agent's commands, built from its settings and the session's directories."""

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.permissions.protected_paths import PROTECTED_DIRECTORIES, PROTECTED_FILES
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_files import AgentFiles
from coterie.agents.sandbox.capabilities import unavailable_reason
from coterie.agents.sandbox.sandbox import Sandbox, SandboxBackend
from coterie.agents.sandbox.sensitive_paths import Repository, hidden_paths
from coterie.agents.settings import SANDBOX_MODES, SandboxSettings, Settings
from coterie.agents.tools.tool import JOBS_DIRECTORY, RESULTS_DIRECTORY
from coterie.errors import ConfigInvalid


def strictest_sandbox(own: SandboxSettings, *above: SandboxSettings) -> SandboxSettings:
    """The sandbox of an agent: no wider than that of any agent *above* it."""
    every = (own, *above)
    return SandboxSettings(
        mode=max((each.mode for each in every), key=SANDBOX_MODES.index),
        network=all(each.network for each in every),
        write=tuple(path for path in own.write if all(_is_open(path, each) for each in above)),
        hide=tuple(dict.fromkeys(path for each in every for path in each.hide)),
        auto_allow=all(each.auto_allow for each in every),
    )


def _is_open(path: Any, settings: SandboxSettings) -> bool:
    return any(path.is_relative_to(place) for place in settings.write)


TEMPORARY = "tmp"
"""In an agent's directory: what its commands know as the place for temporary files, for as long as it runs."""
GIT = ".git"


def check_sandbox(settings: Settings, project: Path) -> None:
    """Return if this machine can hold the sandbox that *settings* want for work in *project*. Blocks.

    Raises `ConfigInvalid` with what is missing: nothing is run without the sandbox that was asked for.
    """
    wanted = settings.sandbox
    if wanted.mode == "none":
        return
    source = settings.source("sandbox.mode")
    if missing := unavailable_reason(wanted.mode):
        raise ConfigInvalid(source, f'sandbox = "{wanted.mode}" is not to be had here: {missing}')
    _check(_sandbox(wanted, wanted.mode, project, project), source)


@asynccontextmanager
async def open_sandbox(spec: AgentSpec, files: AgentFiles, readable: Iterable[Path]) -> AsyncIterator[Sandbox | None]:
    """Open the sandbox around the commands of one agent; None if the settings want none.

    Commands may read what is in *readable*. The directory for temporary files is removed when the block ends. Raises
    `ConfigInvalid` if the machine cannot provide the sandbox, and `OSError`.
    """
    wanted = strictest_sandbox(spec.settings.sandbox, *(settings.sandbox for settings in spec.parent_settings))
    if wanted.mode == "none":
        yield None
        return
    temporary, scratch = files.directory / TEMPORARY, files.session.scratch
    await trio.to_thread.run_sync(_prepare, temporary, scratch, spec.directory)
    try:
        sandbox = _sandbox(wanted, wanted.mode, spec.directory, temporary)
        _check(sandbox, spec.settings.source("sandbox.mode"))
        yield attrs.evolve(
            sandbox,
            readable=(*sandbox.readable, *_result_directories(files), *readable),
            writable=(*sandbox.writable, scratch),
        )
    finally:
        # Not cancelled: what a thread has begun to remove it removes.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_remove, temporary)


def _sandbox(wanted: SandboxSettings, way: SandboxBackend, root: Path, temporary: Path) -> Sandbox:
    repository = Repository.of(root)
    return Sandbox(
        way=way,
        root=root,
        temporary=temporary,
        network=wanted.network,
        hidden=(*hidden_paths(), *wanted.hide),
        readable=repository.readable,
        writable=repository.writable,
        protected=(*repository.protected, *_protected(root)),
        opened=wanted.write,
        unwanted=repository.unwanted,
        asks_no_more=wanted.auto_allow,
    )


def _protected(root: Path) -> Iterator[Path]:
    """What decides over later runs in *root*, and is no more open to commands than it is to Edit; git's own is."""
    names = (PROTECTED_DIRECTORIES | PROTECTED_FILES) - {GIT}
    return (root / name for name in sorted(names))


def _check(sandbox: Sandbox, source: str) -> None:
    if flaw := sandbox.problem():
        raise ConfigInvalid(source, flaw)


def _result_directories(files: AgentFiles) -> tuple[Path, ...]:
    """Directories in which the agent finds results of its calls."""
    return (files.directory / RESULTS_DIRECTORY, files.directory / JOBS_DIRECTORY)


def _prepare(temporary: Path, scratch: Path, root: Path) -> None:
    """Make the places that can only be opened, or closed, if they are there."""
    _remove(temporary)  # a start that was killed may have left it
    temporary.mkdir(mode=0o700, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    for hooks in Repository.of(root).hooks:
        # Where it cannot be made, commands cannot make it either.
        with contextlib.suppress(OSError):
            hooks.mkdir(exist_ok=True)


def _remove(directory: Path) -> None:
    """Remove what can be removed: a command may have left what others, or nobody, may write."""
    shutil.rmtree(directory, ignore_errors=True)
