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
"""The source of a value that nobody set."""


@attrs.frozen(kw_only=True)
class PermissionSettings:
    """`[permissions]`; the rules of all files add up."""

    mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class SandboxSettings:
    """`[sandbox]`, or `sandbox = "..."` for the mode alone; the paths of all files add up."""

    mode: SandboxMode = "none"
    network: bool = False
    write: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()
    auto_allow: bool = False


@attrs.frozen(kw_only=True)
class WebSettings:
    """`[web]`; the hosts of all files add up."""

    hosts: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TranscriptSettings:
    """`[transcript]`."""

    fsync: Fsync = "turn"


@attrs.frozen(kw_only=True)
class MailSettings:
    """`[mail]`."""

    durability: MailDurability = "process"


@attrs.frozen(kw_only=True)
class InstructionSettings:
    """`[instructions]`."""

    enabled: bool = True


@attrs.frozen(kw_only=True)
class HookSettings:
    """`[hooks]`; what is to run at which event stands beside these, and is read by who runs it."""

    enabled: bool = True
    claude: bool = True


@attrs.frozen(kw_only=True)
class SkillSettings:
    """`[skills]`."""

    enabled: bool = True
    listing: float = 0.01


@attrs.frozen(kw_only=True)
class AgentSettings:
    """`[agents]`: the processes of a session."""

    at_once: int = 20
    starts: int = 3
    stall_after: float = 660.0


@attrs.frozen(kw_only=True)
class ApprovalSettings:
    """`[approvals]`."""

    plans: PlanApprover = "lead"


@attrs.frozen(kw_only=True)
class ProgressSettings:
    """`[progress]`: what each agent is at, in a few words."""

    enabled: bool | None = None
    every: float = 30.0
    model: str = "haiku"


@attrs.frozen(kw_only=True)
class McpSettings:
    """`[mcp]`."""

    enabled: bool = True
    start_seconds: float = 10.0
    call_seconds: float = 600.0


@attrs.frozen(kw_only=True)
class MemorySettings:
    """`[memory]`."""

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
        """The value of a dotted *key*."""
        value: Any = self
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def source(self, key: str) -> str:
        """Where the value of a dotted *key* stands: files, a variable, the command line, or `default`.

        Raises `KeyError` for a key that is no setting.
        """
        return ", ".join(dict.fromkeys(self.item_sources(key))) or DEFAULT

    def item_sources(self, key: str) -> tuple[str, ...]:
        """Where each item of a list stands, in the order of the items; of another value, its one source if any."""
        if key not in SETTINGS:
            raise KeyError(key)
        return self._sources.get(key, ())

    def is_final(self, key: str) -> bool:
        """Whether the value of *key* was given on the command line or by whoever manages the machine."""
        return key in self._final

    @classmethod
    def build(
        cls, values: Mapping[str, Any], sources: Mapping[str, tuple[str, ...]], final: frozenset[str] = frozenset()
    ) -> "Settings":
        """Settings from values of the right type by dotted key; what is not among them has its default."""
        settings: Settings = _build(cls, "", values)
        return attrs.evolve(settings, sources=sources, final=final)


@attrs.frozen
class Setting:
    """One setting, without its value."""

    kind: Any
    """Its type, without None: a file cannot say None."""
    default: Any


def sections(section: type) -> dict[str, type]:
    """The tables that a section holds, by name."""
    return {field.name: field.type for field in attrs.fields(section) if field.type and attrs.has(field.type)}


def _settings(section: type, prefix: str) -> Iterator[tuple[str, Setting]]:
    tables = sections(section)
    for field in attrs.fields(section):
        if field.name in tables:
            yield from _settings(tables[field.name], f"{prefix}{field.name}.")
        elif not field.name.startswith("_"):
            yield prefix + field.name, Setting(_strip_optional(field.type), field.default)


def _strip_optional(kind: Any) -> Any:
    alternatives = get_args(kind)
    return alternatives[0] if type(None) in alternatives else kind


def _build(section: type, prefix: str, values: Mapping[str, Any]) -> Any:
    tables = {name: _build(table, f"{prefix}{name}.", values) for name, table in sections(section).items()}
    own = {field.name: values[prefix + field.name] for field in attrs.fields(section) if prefix + field.name in values}
    return section(**tables, **own)


SETTINGS: Mapping[str, Setting] = dict(_settings(Settings, ""))
"""Every setting by its dotted key."""
SECTIONS = frozenset(key.rsplit(".", depth)[0] for key in SETTINGS for depth in range(1, key.count(".") + 1))
"""The dotted name of every table."""
SHORT = {"sandbox": "sandbox.mode"}
"""Tables in whose place one value can stand, and the setting that it is for."""


def dump_settings(settings: Settings) -> Mapping[str, Any]:
    """*settings* as JSON can hold them; numbers and paths may still be themselves."""
    return {
        "values": {key: settings.value(key) for key in SETTINGS},
        "sources": {key: settings.item_sources(key) for key in SETTINGS},
        "final": [key for key in SETTINGS if settings.is_final(key)],
    }


def load_settings_dump(carried: Mapping[str, Any]) -> Settings:
    """Settings from what `dump_settings` gave, after JSON."""
    values = {
        key: msgspec.convert(value, SETTINGS[key].kind, dec_hook=_from_text, strict=False)
        for key, value in carried["values"].items()
        if value is not None
    }
    sources = {key: tuple(found) for key, found in carried["sources"].items() if found}
    return Settings.build(values, sources, frozenset(carried["final"]))


def _from_text(kind: type, value: Any) -> Any:
    assert kind is Path, f"no setting is a {kind.__name__}"
    return Path(value)


SANDBOX_MODES = get_args(SandboxMode)

SETTINGS_FILE = "settings.toml"
LOCAL_SETTINGS_FILE = "settings.local.toml"
MANAGED_FILE = Path("/etc/coterie") / SETTINGS_FILE
