"""The files that hooks stand in, and what can be read of them; trouble with one is told, and the others count."""

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.agents.definitions import Definition
from coterie.agents.home import home
from coterie.agents.hooks.hook import Hook, content_of
from coterie.agents.hooks.reading import HookReader
from coterie.agents.project import project_directory, project_root
from coterie.orchestrator.hooks.json_lines import JsonLines
from coterie.orchestrator.settings.loading import FILE, LOCAL_FILE, MANAGED_FILE
from coterie.orchestrator.settings.schema import HookSettings
from coterie.orchestrator.teams.toml_lines import TomlLines

CLAUDE_HOME_VARIABLE = "CLAUDE_CONFIG_DIR"
CLAUDE = ".claude"
CLAUDE_FILE = "settings.json"
CLAUDE_LOCAL_FILE = "settings.local.json"
LARGEST = 1_000_000
"""Bytes of a file of settings that are read."""
SWITCHES = tuple(field.name for field in attrs.fields(HookSettings))
"""What stands beside events in `[hooks]`."""

Owner = Literal["machine", "user", "project"]
"""Whose file it is. A repository brings its project's along, so what stands there must be approved."""
LineOf = Callable[..., int]


@attrs.frozen(kw_only=True)
class HookSource:
    """One file with hooks."""

    path: Path
    owner: Owner
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
    is_home = ours.resolve() == home().resolve()
    found = [_read_toml(managed, "machine"), _read_toml(home() / FILE, "user")]
    if settings.claude:
        found += _claude_sources(project_root(directory))
    found += [] if is_home else [_read_toml(ours / FILE, "project")]
    found.append(_read_toml(ours / LOCAL_FILE, "project"))
    return [source for source in found if source is not None]


def kind_source(kind: Definition) -> HookSource:
    """The hooks of a definition, whose flaws `coterie agents check` tells."""
    owner: Owner = "project" if kind.scope in ("claude", "project") else "user"
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


def _read_json(path: Path, owner: Owner) -> HookSource | None:
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
    found = _read_hooks(path, owner, table.get("hooks", {}), lambda *place: JsonLines.of(text).of_place(*place))
    return attrs.evolve(found, is_off=is_off) if found else HookSource(path=path, owner=owner, is_off=is_off)


def _read_toml(path: Path, owner: Owner) -> HookSource | None:
    text = _text(path, owner)
    if not isinstance(text, str):
        return text
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        return HookSource(path=path, owner=owner, flaws=(f"{path}: not readable TOML, so its hooks do not run: {exc}",))
    hooks = table.get("hooks", {})
    if isinstance(hooks, dict):
        hooks = {name: value for name, value in hooks.items() if name not in SWITCHES}
    return _read_hooks(path, owner, hooks, lambda *place: TomlLines.of(text).of_place(*place, 0))


def _read_hooks(path: Path, owner: Owner, value: Any, line_of: LineOf) -> HookSource | None:
    reader = HookReader(str(path))
    hooks = reader.read(value)
    flaws = tuple(f"{path}:{line_of('hooks', *flaw.place)}: {flaw.reason}" for flaw in reader.flaws)
    names = ", ".join(reader.elsewhere)
    note = f"{path}: events that do not happen here, so their hooks do not run: {names}" if names else None
    if not (hooks or flaws or note):
        return None
    return HookSource(path=path, owner=owner, hooks=hooks, flaws=flaws, note=note)


def _text(path: Path, owner: Owner) -> str | HookSource | None:
    """The text of *path*; None if there is no such file. Never waits for a pipe."""
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > LARGEST:
            reason = f"not a file of at most {LARGEST:,} bytes"
            return HookSource(path=path, owner=owner, flaws=(f"{path}: {reason}; its hooks do not run",))
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        return HookSource(path=path, owner=owner, flaws=(f"{path}: cannot be read, so its hooks do not run: {exc}",))


def counted(sources: list[HookSource]) -> Iterator[str]:
    """Each of *sources* with the number of its hooks."""
    for source in sources:
        number = len(source.hooks)
        yield f"{source.path} ({number} hook{'' if number == 1 else 's'})"
