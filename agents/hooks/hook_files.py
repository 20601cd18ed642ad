"""Hook files: settings files and agent definitions that contain hooks, and the user's approvals of their hooks."""

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.hooks.hook import Hook, HookParser, content_of
from coterie.agents.settings import LOCAL_SETTINGS_FILE, MANAGED_FILE, SETTINGS_FILE, HookSettings
from coterie.paths import home_directory, project_directory, project_root
from coterie.source_positions import JsonPositions, TomlPositions
from coterie.trusted_files import TrustedContents

CLAUDE_HOME_VARIABLE = "CLAUDE_CONFIG_DIR"
CLAUDE = ".claude"
CLAUDE_FILE = "settings.json"
CLAUDE_LOCAL_FILE = "settings.local.json"
MAX_HOOK_FILE_BYTES = 1_000_000
"""Maximum size of a file with hooks, in bytes; the hooks in a larger file do not run."""
SWITCH_KEYS = tuple(field.name for field in attrs.fields(HookSettings))
"""Keys in the table `[hooks]` that are settings, and not names of events."""

FileOwner = Literal["machine", "user", "project"]
"""Owner of a hook file. Hooks of a project come with its repository, so they run only after the user approved them."""
LineOf = Callable[..., int]


@attrs.frozen(kw_only=True)
class HookSource:
    """Hooks of one file, and the problems in this file."""

    path: Path
    owner: FileOwner
    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for the user for each problem in the file, with the path and, if known, the line number."""
    note: str | None = None
    """Line for the user about hooks for events of other products, which do not run; None if there are no such hooks."""
    is_off: bool = False
    """True if this file disables all hooks of `.claude` files; in a file of a project, only hooks of the project."""

    @property
    def content(self) -> bytes:
        """Bytes to which the user's approval is bound: they change with every event, matcher, command or timeout."""
        return content_of(self.hooks)


def hook_sources(directory: Path, settings: HookSettings, managed: Path = MANAGED_FILE) -> list[HookSource]:
    """Return the hook files for work in *directory*: of the machine, the user, then the project.

    Reads `.claude` only if *settings* allow it, that of the project not if the user's file disables hooks. These files
    are returned even without hooks. Blocks on the disk. Problems in files do not raise.
    """
    own_directory = project_directory(directory)
    is_home = own_directory.resolve() == home_directory().resolve()
    found = [_read_toml(managed, "machine"), _read_toml(home_directory() / SETTINGS_FILE, "user")]
    if settings.claude:
        found += _claude_sources(project_root(directory))
    found += [] if is_home else [_read_toml(own_directory / SETTINGS_FILE, "project")]
    found.append(_read_toml(own_directory / LOCAL_SETTINGS_FILE, "project"))
    return [source for source in found if source is not None]


def definition_source(definition: AgentDefinition) -> HookSource:
    """Return the hooks of an agent definition as a source without problems, which `coterie agents check` reports."""
    owner: FileOwner = "project" if definition.scope in ("claude", "project") else "user"
    return HookSource(path=definition.source or Path(definition.name), owner=owner, hooks=definition.hooks)


def claude_home() -> Path:
    """Return the directory of another product's user files, with hooks: `$CLAUDE_CONFIG_DIR`, or else `~/.claude`."""
    return Path(os.environ.get(CLAUDE_HOME_VARIABLE) or "~/.claude").expanduser()


def _claude_sources(root: Path) -> list[HookSource | None]:
    user = _read_json(claude_home() / CLAUDE_FILE, "user")
    if user is not None and user.is_off:
        return [attrs.evolve(user, hooks=())]
    names = () if (root / CLAUDE).resolve() == claude_home().resolve() else (CLAUDE_FILE, CLAUDE_LOCAL_FILE)
    projects = [_read_json(root / CLAUDE / name, "project") for name in names]
    if any(source is not None and source.is_off for source in projects):
        # A project may switch off its own hooks, but not those of the user.
        projects = [None if source is None else attrs.evolve(source, hooks=()) for source in projects]
    return [user, *projects]


def _read_json(path: Path, owner: FileOwner) -> HookSource | None:
    parsed = _parse(path, owner, "JSON", json.loads)
    if not isinstance(parsed, tuple):
        return parsed
    text, table = parsed
    if not isinstance(table, dict):
        return HookSource(path=path, owner=owner, problems=(f"{path}: must be a JSON object; its hooks do not run",))
    is_off = table.get("disableAllHooks") is True
    found = _read_hooks(path, owner, table.get("hooks", {}), lambda *place: JsonPositions.parse(text).line_of(*place))
    return attrs.evolve(found, is_off=is_off) if found else HookSource(path=path, owner=owner, is_off=is_off)


def _read_toml(path: Path, owner: FileOwner) -> HookSource | None:
    parsed = _parse(path, owner, "TOML", tomllib.loads)
    if not isinstance(parsed, tuple):
        return parsed
    text, table = parsed
    hooks = table.get("hooks", {})
    if isinstance(hooks, dict):
        hooks = {name: value for name, value in hooks.items() if name not in SWITCH_KEYS}
    return _read_hooks(path, owner, hooks, lambda *place: TomlPositions.parse(text).line_of(*place, 0))


def _read_hooks(path: Path, owner: FileOwner, value: Any, line_of: LineOf) -> HookSource | None:
    reader = HookParser(str(path))
    hooks = reader.parse(value)
    problems = tuple(f"{path}:{line_of('hooks', *problem.place)}: {problem.reason}" for problem in reader.problems)
    names = ", ".join(reader.elsewhere)
    note = f"{path}: these events do not exist here, so their hooks do not run: {names}" if names else None
    if not (hooks or problems or note):
        return None
    return HookSource(path=path, owner=owner, hooks=hooks, problems=problems, note=note)


def _parse(
    path: Path, owner: FileOwner, language: str, parse: Callable[[str], Any]
) -> tuple[str, Any] | HookSource | None:
    """Read *path* and return its text, and the result of *parse* for it; None if the file does not exist.

    If it cannot be read or parsed, returns a source with the problem. Never blocks on a named pipe.
    """
    problem = "cannot be read"
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > MAX_HOOK_FILE_BYTES:
            reason = f"not a file of at most {MAX_HOOK_FILE_BYTES:,} bytes"
            return HookSource(path=path, owner=owner, problems=(f"{path}: {reason}; its hooks do not run",))
        text = path.read_text(encoding="utf-8")
        problem = f"not valid {language}"
        return text, parse(text)
    except (OSError, ValueError, RecursionError) as exc:
        return HookSource(path=path, owner=owner, problems=(f"{path}: {problem}, so its hooks do not run: {exc}",))


def count_hooks(sources: list[HookSource]) -> Iterator[str]:
    """Yield a text for each source with its path and the number of its hooks."""
    for source in sources:
        number = len(source.hooks)
        yield f"{source.path} ({number} hook{'' if number == 1 else 's'})"


@attrs.frozen(kw_only=True)
class HookSelection:
    """Hook files in two groups: those whose hooks may run, and those that wait for the user's approval."""

    approved: tuple[HookSource, ...]
    waiting: tuple[HookSource, ...]

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """All hooks that may run, because they need no approval or have been approved."""
        return tuple(hook for source in self.approved for hook in source.hooks)

    def notice(self) -> str | None:
        """Return a line about the hooks that wait for approval, with the command that approves them; else None."""
        if not self.waiting:
            return None
        names = ", ".join(count_hooks(list(self.waiting)))
        return f"not approved, so they do not run: {names}; review and approve them with `coterie hooks approve`"


def select_hooks(directory: Path, sources: Iterable[HookSource]) -> HookSelection:
    """Group *sources* with hooks: waiting (of a project, not approved) or approved. Blocks. Raises `ConfigInvalid`."""
    record = TrustedContents.of(project_root(directory), "hooks")
    found = [source for source in sources if source.hooks]
    waiting = [source for source in found if source.owner == "project" and source.content not in record]
    approved = tuple(source for source in found if source not in waiting)
    return HookSelection(approved=approved, waiting=tuple(waiting))


def approve_sources(directory: Path, sources: Iterable[HookSource]) -> None:
    """Record the user's approval of the hooks of *sources*. Blocks. Raises `ConfigInvalid`, `OSError`, `Timeout`."""
    TrustedContents.of(project_root(directory), "hooks").approve(*(source.content for source in sources))
