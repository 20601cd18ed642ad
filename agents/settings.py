"""Settings of a session, each with its type and default, and their encoding for another process.

The sections of the context layers and of recall are in `coterie.memory.layer_settings`.
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
"""Source of a value that is not set."""


@attrs.frozen(kw_only=True)
class PermissionSettings:
    """Section `[permissions]`; rules of all files are combined."""

    mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class SandboxSettings:
    """Section `[sandbox]`, or `sandbox = "..."` for the mode alone; paths of all files are combined."""

    mode: SandboxMode = "none"
    network: bool = False
    write: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()
    auto_allow: bool = False


@attrs.frozen(kw_only=True)
class WebSettings:
    """Section `[web]`; hosts of all files are combined."""

    hosts: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TranscriptSettings:
    """Section `[transcript]`."""

    fsync: Fsync = "turn"


@attrs.frozen(kw_only=True)
class MailSettings:
    """Section `[mail]`."""

    durability: MailDurability = "process"


@attrs.frozen(kw_only=True)
class InstructionSettings:
    """Section `[instructions]`."""

    enabled: bool = True


@attrs.frozen(kw_only=True)
class HookSettings:
    """Section `[hooks]`. The same table also contains the hooks by event, which are parsed separately."""

    enabled: bool = True
    claude: bool = True


@attrs.frozen(kw_only=True)
class SkillSettings:
    """Section `[skills]`."""

    enabled: bool = True
    listing: float = 0.01


@attrs.frozen(kw_only=True)
class AgentSettings:
    """Section `[agents]`: processes of a session."""

    at_once: int = 20
    starts: int = 3
    stall_after: float = 660.0


@attrs.frozen(kw_only=True)
class ApprovalSettings:
    """Section `[approvals]`."""

    plans: PlanApprover = "lead"


@attrs.frozen(kw_only=True)
class ProgressSettings:
    """Section `[progress]`: summaries of the activity of each agent."""

    enabled: bool | None = None
    every: float = 30.0
    model: str = "haiku"


@attrs.frozen(kw_only=True)
class McpSettings:
    """Section `[mcp]`."""

    enabled: bool = True
    start_seconds: float = 10.0
    call_seconds: float = 600.0


@attrs.frozen(kw_only=True)
class MemorySettings:
    """Section `[memory]`."""

    enabled: bool = True
    daily_log: bool = False
    search_past: bool = False
    guidelines: Path | None = None
    recall: RecallSettings = attrs.field(factory=RecallSettings)


@attrs.frozen(kw_only=True)
class Settings:
    """All settings of a run."""

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
        """Return the value of the dotted *key*."""
        value: Any = self
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def source(self, key: str) -> str:
        """Return the source of the value of the dotted *key*: files, a variable, the command line, or `default`.

        Raises `KeyError` for an unknown key.
        """
        return ", ".join(dict.fromkeys(self.item_sources(key))) or DEFAULT

    def item_sources(self, key: str) -> tuple[str, ...]:
        """Return the source of each item of a list, in order; for another value, its only source if it is set."""
        if key not in SETTINGS:
            raise KeyError(key)
        return self._sources.get(key, ())

    def is_final(self, key: str) -> bool:
        """True if the value of *key* was set on the command line or by the administrator of the machine."""
        return key in self._final

    @classmethod
    def build(
        cls, values: Mapping[str, Any], sources: Mapping[str, tuple[str, ...]], final: frozenset[str] = frozenset()
    ) -> "Settings":
        """Build settings from values of the right type by dotted key; missing keys have their default."""
        settings: Settings = _build(cls, "", values)
        return attrs.evolve(settings, sources=sources, final=final)


@attrs.frozen
class Setting:
    """Declaration of one setting."""

    kind: Any
    """Type of the value, without None: a file cannot contain None."""
    default: Any


def sections(section: type) -> dict[str, type]:
    """Return the types of the tables in *section*, by name."""
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
"""Every setting by its dotted key."""
SECTIONS = frozenset(key.rsplit(".", depth)[0] for key in SETTINGS for depth in range(1, key.count(".") + 1))
"""Dotted names of all tables."""
SHORT = {"sandbox": "sandbox.mode"}
"""Tables that a single value can replace, with the setting that receives the value."""


def dump_settings(settings: Settings) -> Mapping[str, Any]:
    """Return *settings* as JSON-compatible members; numbers and paths may still be Python objects."""
    return {
        "values": {key: settings.value(key) for key in SETTINGS},
        "sources": {key: settings.item_sources(key) for key in SETTINGS},
        "final": [key for key in SETTINGS if settings.is_final(key)],
    }


def load_settings_dump(dump: Mapping[str, Any]) -> Settings:
    """Build settings from the result of `dump_settings`, decoded from JSON."""
    values = {
        key: msgspec.convert(value, SETTINGS[key].kind, dec_hook=path_from_json, strict=False)
        for key, value in dump["values"].items()
        if value is not None
    }
    sources = {key: tuple(found) for key, found in dump["sources"].items() if found}
    return Settings.build(values, sources, frozenset(dump["final"]))


def path_from_json(kind: type, value: Any) -> Any:
    """Decode a path, the only type in settings and specs that msgspec does not know; a `dec_hook` of msgspec."""
    assert kind is Path, f"no member is a {kind.__name__}"
    return Path(value)


SANDBOX_MODES = get_args(SandboxMode)

SETTINGS_FILE = "settings.toml"
LOCAL_SETTINGS_FILE = "settings.local.toml"
MANAGED_FILE = Path("/etc/coterie") / SETTINGS_FILE
