"""Sandbox (restrictions by the operating system) around an agent's shell commands, built from its settings."""

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.agents.permissions.path_pattern import PROTECTED_DIRECTORIES, PROTECTED_FILES
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_files import AgentFiles
from coterie.agents.sandbox.backends import SandboxBackend, unavailable_reason
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.sandbox.sensitive_paths import Repository, hidden_paths
from coterie.agents.settings import SANDBOX_MODES, SandboxSettings, Settings
from coterie.agents.tools.tool import JOBS_DIRECTORY, RESULTS_DIRECTORY
from coterie.errors import ConfigInvalid


def strictest_sandbox(own: SandboxSettings, *above: SandboxSettings) -> SandboxSettings:
    """Return sandbox settings that allow only what *own*, of an agent, and *above*, of all its ancestors, allow."""
    all_settings = (own, *above)

    def is_writable(path: Path) -> bool:
        return all(any(path.is_relative_to(place) for place in each.write) for each in above)

    return SandboxSettings(
        mode=max((each.mode for each in all_settings), key=SANDBOX_MODES.index),
        network=all(each.network for each in all_settings),
        write=tuple(filter(is_writable, own.write)),
        hide=tuple(dict.fromkeys(path for each in all_settings for path in each.hide)),
        auto_allow=all(each.auto_allow for each in all_settings),
    )


TEMPORARY = "tmp"
"""Name of the directory, in the agent's directory, for temporary files of commands; deleted when the agent ends."""
GIT = ".git"


def check_sandbox(settings: Settings, project: Path) -> None:
    """Check that this machine supports the sandbox that *settings* require for commands in *project*. Blocks.

    Raises `ConfigInvalid` that names the missing feature, because no command may run without the required sandbox.
    """
    sandbox_settings = settings.sandbox
    if sandbox_settings.mode == "none":
        return
    source = settings.source("sandbox.mode")
    if missing := unavailable_reason(sandbox_settings.mode):
        raise ConfigInvalid(source, f'sandbox = "{sandbox_settings.mode}" is not available: {missing}')
    _check(_sandbox(sandbox_settings, sandbox_settings.mode, project, project), source)


@asynccontextmanager
async def open_sandbox(spec: AgentSpec, files: AgentFiles, readable: Iterable[Path]) -> AsyncIterator[Sandbox | None]:
    """Create the sandbox for the shell commands of one agent; None if the settings require no sandbox.

    Commands may also read the directories *readable*. The end of the block deletes the directory for temporary files.
    Raises `ConfigInvalid` if Landlock cannot enforce the path rules, and `OSError`.
    """
    sandbox_settings = strictest_sandbox(
        spec.settings.sandbox, *(settings.sandbox for settings in spec.parent_settings)
    )
    if sandbox_settings.mode == "none":
        yield None
        return
    temporary, scratch = files.directory / TEMPORARY, files.session.scratch
    await trio.to_thread.run_sync(_prepare, temporary, scratch, spec.directory)
    try:
        sandbox = _sandbox(sandbox_settings, sandbox_settings.mode, spec.directory, temporary)
        _check(sandbox, spec.settings.source("sandbox.mode"))
        results = (files.directory / RESULTS_DIRECTORY, files.directory / JOBS_DIRECTORY)
        yield attrs.evolve(
            sandbox,
            readable=(*sandbox.readable, *results, *readable),
            writable=(*sandbox.writable, scratch),
        )
    finally:
        # Shielded: a thread that has begun to remove files cannot be cancelled.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_remove, temporary)


def _sandbox(sandbox_settings: SandboxSettings, way: SandboxBackend, root: Path, temporary: Path) -> Sandbox:
    repository = Repository.of(root)
    # As Edit may not write them either, because they affect later runs.
    protected = sorted((PROTECTED_DIRECTORIES | PROTECTED_FILES) - {GIT})
    return Sandbox(
        way=way,
        root=root,
        temporary=temporary,
        network=sandbox_settings.network,
        hidden=(*hidden_paths(), *sandbox_settings.hide),
        readable=repository.readable,
        writable=repository.writable,
        protected=(*repository.protected, *(root / name for name in protected)),
        opened=sandbox_settings.write,
        unwanted=repository.unwanted,
        asks_no_more=sandbox_settings.auto_allow,
    )


def _check(sandbox: Sandbox, source: str) -> None:
    if problem := sandbox.problem():
        raise ConfigInvalid(source, problem)


def _prepare(temporary: Path, scratch: Path, root: Path) -> None:
    """Create *temporary* (empty), *scratch*, and *root*'s git hook directories; only existing ones can be protected."""
    _remove(temporary)  # An incarnation that was killed may have left the directory.
    temporary.mkdir(mode=0o700, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    for hooks in Repository.of(root).hooks:
        # If this process cannot create the directory, commands cannot either.
        with contextlib.suppress(OSError):
            hooks.mkdir(exist_ok=True)


def _remove(directory: Path) -> None:
    """Delete *directory*, but ignore errors, because commands may leave files that this user may not delete."""
    shutil.rmtree(directory, ignore_errors=True)
