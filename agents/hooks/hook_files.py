"""Files with hooks, and which of them the user has approved."""

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.hooks.hook import Hook, content_of
from coterie.agents.hooks.hook_parser import HookParser
from coterie.agents.settings import LOCAL_SETTINGS_FILE, MANAGED_FILE, SETTINGS_FILE, HookSettings
from coterie.paths import home_directory, project_directory, project_root
from coterie.source_positions import JsonPositions, TomlPositions
from coterie.trusted_files import TrustedContents

CLAUDE_HOME_VARIABLE = "CLAUDE_CONFIG_DIR"
CLAUDE = ".claude"
CLAUDE_FILE = "settings.json"
CLAUDE_LOCAL_FILE = "settings.local.json"
MAX_HOOK_FILE_BYTES = 1_000_000
"""Bytes of a file of settings that are read."""
SWITCH_KEYS = tuple(field.name for field in attrs.fields(HookSettings))
"""What stands beside events in `[hooks]`."""

FileOwner = Literal["machine", "user", "project"]
"""Whose file it is. A repository brings its project's along, so what stands there must be approved."""
LineOf = Callable[..., int]


@attrs.frozen(kw_only=True)
class HookSource:
    """One file with hooks."""

    path: Path
    owner: FileOwner
    hooks: tuple[Hook, ...] = ()
    flaws: tuple[str, ...] = ()
    """What is wrong with it, each with its line, and what would be right."""
    note: str | None = None
    """What it says rightly, and has no effect here."""
    is_off: bool = False
    """Whether it says that no hooks are to run."""

    @property
    def content(self) -> bytes:
        """What an approval of it is about."""
        return content_of(self.hooks)


def hook_sources(directory: Path, settings: HookSettings, managed: Path = MANAGED_FILE) -> list[HookSource]:
    """The files with hooks, or with trouble, that hold for work in *directory*, in the order their hooks run.

    Blocks on the disk; nothing about a file raises.
    """
    ours = project_directory(directory)
    is_home = ours.resolve() == home_directory().resolve()
    found = [_read_toml(managed, "machine"), _read_toml(home_directory() / SETTINGS_FILE, "user")]
    if settings.claude:
        found += _claude_sources(project_root(directory))
    found += [] if is_home else [_read_toml(ours / SETTINGS_FILE, "project")]
    found.append(_read_toml(ours / LOCAL_SETTINGS_FILE, "project"))
    return [source for source in found if source is not None]


def definition_source(kind: AgentDefinition) -> HookSource:
    """The hooks of a definition, whose flaws `coterie agents check` tells."""
    owner: FileOwner = "project" if kind.scope in ("claude", "project") else "user"
    return HookSource(path=kind.source or Path(kind.name), owner=owner, hooks=kind.hooks)


def claude_home() -> Path:
    """Where another product keeps this user's files; they are only read."""
    return Path(os.environ.get(CLAUDE_HOME_VARIABLE) or "~/.claude").expanduser()


def _claude_sources(root: Path) -> list[HookSource | None]:
    user = _read_json(claude_home() / CLAUDE_FILE, "user")
    if user is not None and user.is_off:
        return [attrs.evolve(user, hooks=())]
    names = () if (root / CLAUDE).resolve() == claude_home().resolve() else (CLAUDE_FILE, CLAUDE_LOCAL_FILE)
    projects = [_read_json(root / CLAUDE / name, "project") for name in names]
    if any(source is not None and source.is_off for source in projects):
        # A project may do without its own hooks, but not without the user's.
        projects = [None if source is None else attrs.evolve(source, hooks=()) for source in projects]
    return [user, *projects]


def _read_json(path: Path, owner: FileOwner) -> HookSource | None:
    text = _text(path, owner)
    if not isinstance(text, str):
        return text
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return HookSource(path=path, owner=owner, flaws=(f"{path}: not readable JSON, so its hooks do not run: {exc}",))
    if not isinstance(table, dict):
        return HookSource(path=path, owner=owner, flaws=(f"{path}: must be a JSON object; its hooks do not run",))
    is_off = table.get("disableAllHooks") is True
    found = _read_hooks(path, owner, table.get("hooks", {}), lambda *place: JsonPositions.parse(text).line_of(*place))
    return attrs.evolve(found, is_off=is_off) if found else HookSource(path=path, owner=owner, is_off=is_off)


def _read_toml(path: Path, owner: FileOwner) -> HookSource | None:
    text = _text(path, owner)
    if not isinstance(text, str):
        return text
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        return HookSource(path=path, owner=owner, flaws=(f"{path}: not readable TOML, so its hooks do not run: {exc}",))
    hooks = table.get("hooks", {})
    if isinstance(hooks, dict):
        hooks = {name: value for name, value in hooks.items() if name not in SWITCH_KEYS}
    return _read_hooks(path, owner, hooks, lambda *place: TomlPositions.parse(text).line_of(*place, 0))


def _read_hooks(path: Path, owner: FileOwner, value: Any, line_of: LineOf) -> HookSource | None:
    reader = HookParser(str(path))
    hooks = reader.parse(value)
    flaws = tuple(f"{path}:{line_of('hooks', *flaw.place)}: {flaw.reason}" for flaw in reader.problems)
    names = ", ".join(reader.elsewhere)
    note = f"{path}: events that do not happen here, so their hooks do not run: {names}" if names else None
    if not (hooks or flaws or note):
        return None
    return HookSource(path=path, owner=owner, hooks=hooks, flaws=flaws, note=note)


def _text(path: Path, owner: FileOwner) -> str | HookSource | None:
    """The text of *path*; None if there is no such file. Never waits for a pipe."""
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > MAX_HOOK_FILE_BYTES:
            reason = f"not a file of at most {MAX_HOOK_FILE_BYTES:,} bytes"
            return HookSource(path=path, owner=owner, flaws=(f"{path}: {reason}; its hooks do not run",))
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        return HookSource(path=path, owner=owner, flaws=(f"{path}: cannot be read, so its hooks do not run: {exc}",))


def count_hooks(sources: list[HookSource]) -> Iterator[str]:
    """Each of *sources* with the number of its hooks."""
    for source in sources:
        number = len(source.hooks)
        yield f"{source.path} ({number} hook{'' if number == 1 else 's'})"


@attrs.frozen(kw_only=True)
class HookSelection:
    """What holds, and what would if the user approved it."""

    approved: tuple[HookSource, ...]
    waiting: tuple[HookSource, ...]

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Those that may run."""
        return tuple(hook for source in self.approved for hook in source.hooks)

    def notice(self) -> str | None:
        """That some do not run, and what to do about it; None if all do."""
        if not self.waiting:
            return None
        names = ", ".join(count_hooks(list(self.waiting)))
        return f"not approved, so they do not run: {names}; `coterie hooks approve` shows them and approves"


def select_hooks(directory: Path, sources: Iterable[HookSource]) -> HookSelection:
    """Which of *sources* hold for work in *directory*. Blocks; raises `ConfigInvalid` as the record does."""
    record = TrustedContents.of(project_root(directory), "hooks")
    found = [source for source in sources if source.hooks]
    waiting = [source for source in found if source.owner == "project" and source.content not in record]
    return HookSelection(
        approved=tuple(source for source in found if source not in waiting),
        waiting=tuple(waiting),
    )


def approve_sources(directory: Path, sources: Iterable[HookSource]) -> None:
    """Let the hooks of *sources* run as they are now. Blocks; raises as `TrustedContents.approve` does."""
    TrustedContents.of(project_root(directory), "hooks").approve(*(source.content for source in sources))
