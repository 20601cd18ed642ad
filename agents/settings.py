"""Settings of a session, each with its type and default, and functions that send settings to another process.

The settings classes of the context layers and of memory recall are in `coterie.memory.layer_settings`.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Effort
from coterie.memory.layer_settings import LayersSettings, RecallSettings
from coterie.session_directory import MailDurability, SandboxMode

Fsync = Literal["never", "turn", "always"]
PlanApprover = Literal["lead", "human"]
Mode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]

DEFAULT = "default"
"""Text that `Settings.source` returns for a setting that was not set, so that its default applies."""


@attrs.frozen(kw_only=True)
class PermissionSettings:
    """Section `[permissions]`: permission mode and rules for tool calls. The rules of all files are combined."""

    mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class SandboxSettings:
    """Section `[sandbox]`, or `sandbox = "..."` to set only its mode. The paths of all settings files are combined."""

    mode: SandboxMode = "none"
    network: bool = False
    write: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()
    auto_allow: bool = False


@attrs.frozen(kw_only=True)
class WebSettings:
    """Section `[web]`: hosts whose pages agents may fetch. The hosts of all settings files are combined."""

    hosts: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TranscriptSettings:
    """Section `[transcript]`: how often records of a transcript (stored conversation) are flushed to disk."""

    fsync: Fsync = "turn"


@attrs.frozen(kw_only=True)
class MailSettings:
    """Section `[mail]`: the failures that a sent message survives: a crash of any process, or also a loss of power."""

    durability: MailDurability = "process"


@attrs.frozen(kw_only=True)
class InstructionSettings:
    """Section `[instructions]`: `enabled` is true if agents load the instruction files of the user and the project."""

    enabled: bool = True


@attrs.frozen(kw_only=True)
class HookSettings:
    """Switches in section `[hooks]`: for all hooks (commands run at events), and for those in `.claude` files."""

    enabled: bool = True
    claude: bool = True


@attrs.frozen(kw_only=True)
class SkillSettings:
    """Section `[skills]`: `enabled`, and `listing`, the fraction of the context window for the list of skills."""

    enabled: bool = True
    listing: float = 0.01


@attrs.frozen(kw_only=True)
class AgentSettings:
    """Section `[agents]`: limits of running agents, of starts of one agent, and of its seconds without progress."""

    at_once: int = 20
    starts: int = 3
    stall_after: float = 660.0


@attrs.frozen(kw_only=True)
class ApprovalSettings:
    """Section `[approvals]`: `plans` names the approver of agents' plans, unless the start of an agent names one."""

    plans: PlanApprover = "lead"


@attrs.frozen(kw_only=True)
class ProgressSettings:
    """Section `[progress]`: short summaries of each agent's activity, which a small model writes periodically."""

    enabled: bool | None = None
    every: float = 30.0
    model: str = "haiku"


@attrs.frozen(kw_only=True)
class McpSettings:
    """Section `[mcp]`: `enabled` for MCP servers (external tools); seconds allowed for a server's start and a call."""

    enabled: bool = True
    start_seconds: float = 10.0
    call_seconds: float = 600.0


@attrs.frozen(kw_only=True)
class MemorySettings:
    """Section `[memory]`: the memory that agents keep across sessions."""

    enabled: bool = True
    daily_log: bool = False
    search_past: bool = False
    guidelines: Path | None = None
    recall: RecallSettings = attrs.field(factory=RecallSettings)


@attrs.frozen(kw_only=True)
class Settings:
    """All settings of a run, combined from settings files, environment variables and the command line."""

    model: str = "sonnet"
    agent: str | None = None
    max_turns: int = 200
    max_budget_usd: Decimal | None = None
    max_tokens_total: int | None = None
    max_seconds: float | None = None
    effort: Effort | None = None
    thinking: bool | None = None
    memory_directory: Path | None = None
    permissions: PermissionSettings = PermissionSettings()
    sandbox: SandboxSettings = SandboxSettings()
    web: WebSettings = WebSettings()
    transcript: TranscriptSettings = TranscriptSettings()
    mail: MailSettings = MailSettings()
    instructions: InstructionSettings = InstructionSettings()
    memory: MemorySettings = MemorySettings()
    hooks: HookSettings = HookSettings()
    skills: SkillSettings = SkillSettings()
    agents: AgentSettings = AgentSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    progress: ProgressSettings = ProgressSettings()
    mcp: McpSettings = McpSettings()
    layers: LayersSettings = attrs.field(factory=LayersSettings)
    _sources: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, eq=False, repr=False)
    _final: frozenset[str] = attrs.field(default=frozenset(), eq=False, repr=False)

    def value(self, key: str) -> Any:
        """Return the value of the dotted *key*, for example `layers.notes.first`."""
        value: Any = self
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def source(self, key: str) -> str:
        """Return the place where the dotted *key* was set: files, a variable, the command line, or `default`.

        Raises `KeyError` for an unknown key.
        """
        return ", ".join(dict.fromkeys(self.item_sources(key))) or DEFAULT

    def item_sources(self, key: str) -> tuple[str, ...]:
        """Return the places where *key* was set: for a list, one for each item, else one; empty if it was not set."""
        if key not in SETTINGS:
            raise KeyError(key)
        return self._sources.get(key, ())

    def is_final(self, key: str) -> bool:
        """True if command line or machine administrator set *key*, so that an agent definition cannot override it."""
        return key in self._final

    @classmethod
    def build(
        cls, values: Mapping[str, Any], sources: Mapping[str, tuple[str, ...]], final: frozenset[str] = frozenset()
    ) -> "Settings":
        """Build settings from *values* by dotted key, already of the right types; missing keys get their default."""
        settings: Settings = _build(cls, "", values)
        return attrs.evolve(settings, sources=sources, final=final)


@attrs.frozen
class Setting:
    """Type and default of one setting, read from the attribute that declares the setting."""

    kind: Any
    """Type of the value; `int` for `int | None` and similar types, because a settings file cannot contain None."""
    default: Any


def sections(section: type) -> dict[str, type]:
    """Return the settings classes of the tables directly inside the settings class *section*, by attribute name."""
    return {field.name: field.type for field in attrs.fields(section) if field.type and attrs.has(field.type)}


def _settings(section: type, prefix: str) -> Iterator[tuple[str, Setting]]:
    tables = sections(section)
    for field in attrs.fields(section):
        if field.name in tables:
            yield from _settings(tables[field.name], f"{prefix}{field.name}.")
        elif not field.name.startswith("_"):
            alternatives = get_args(field.type)
            kind = alternatives[0] if type(None) in alternatives else field.type
            yield prefix + field.name, Setting(kind, field.default)


def _build(section: type, prefix: str, values: Mapping[str, Any]) -> Any:
    tables = {name: _build(table, f"{prefix}{name}.", values) for name, table in sections(section).items()}
    own = {field.name: values[prefix + field.name] for field in attrs.fields(section) if prefix + field.name in values}
    return section(**tables, **own)


SETTINGS: Mapping[str, Setting] = dict(_settings(Settings, ""))
"""Type and default of every setting, by dotted key such as `layers.notes.first`."""
SECTIONS = frozenset(key.rsplit(".", depth)[0] for key in SETTINGS for depth in range(1, key.count(".") + 1))
"""Dotted names of all tables of the settings files, such as `layers.notes`."""
SHORT = {"sandbox": "sandbox.mode"}
"""Tables for which a settings file may contain a plain value instead, with the setting that receives this value."""


def dump_settings(settings: Settings) -> Mapping[str, Any]:
    """Return *settings* as a mapping for `msgspec.json.encode` with `enc_hook=str`, to send them to another process."""
    return {
        "values": {key: settings.value(key) for key in SETTINGS},
        "sources": {key: settings.item_sources(key) for key in SETTINGS},
        "final": [key for key in SETTINGS if settings.is_final(key)],
    }


def load_settings_dump(dump: Mapping[str, Any]) -> Settings:
    """Restore the settings that another process sent: *dump* is the result of `dump_settings`, decoded from JSON."""
    values = {
        key: msgspec.convert(value, SETTINGS[key].kind, dec_hook=path_from_json, strict=False)
        for key, value in dump["values"].items()
        if value is not None
    }
    sources = {key: tuple(found) for key, found in dump["sources"].items() if found}
    return Settings.build(values, sources, frozenset(dump["final"]))


def path_from_json(kind: type, value: Any) -> Any:
    """Convert a decoded JSON value to a path: the `dec_hook` for msgspec, which itself converts the other types."""
    assert kind is Path, f"no member is a {kind.__name__}"
    return Path(value)


SANDBOX_MODES = get_args(SandboxMode)

SETTINGS_FILE = "settings.toml"
LOCAL_SETTINGS_FILE = "settings.local.toml"
MANAGED_FILE = Path("/etc/coterie") / SETTINGS_FILE
