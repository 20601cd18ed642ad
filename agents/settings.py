"""Every setting with its type and default, and the form in which settings pass to another process."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Effort
from coterie.session_directory import MailDurability, SandboxMode

Fsync = Literal["never", "turn", "always"]
Deletions = Literal["ask", "apply"]
Recaller = Literal["model", "local"]
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
class ResultSettings:
    """`[layers.results]`, the first layer; sizes in characters."""

    enabled: bool = True
    cap: int = 50_000
    bash: int = 30_000
    grep: int = 20_000
    mcp: int = 100_000
    total: int = 200_000
    preview: int = 2_000


@attrs.frozen(kw_only=True)
class ClearingSettings:
    """`[layers.clearing]`, the second layer."""

    by_time: bool = True
    by_cache: bool = True
    by_api: bool = True
    keep: int = 5
    trigger: int = 10
    expected_turns: int = 50


@attrs.frozen(kw_only=True)
class NotesSettings:
    """`[layers.notes]`, the third layer; sizes in tokens."""

    enabled: bool = True
    first: int = 10_000
    step: int = 5_000
    calls: int = 3
    share: float = 0.08
    section: int = 2_000
    total: int = 12_000
    template: Path | None = None
    prompt: Path | None = None


@attrs.frozen(kw_only=True)
class CompactionSettings:
    """`[layers.compaction]`, the fourth layer; sizes in tokens."""

    enabled: bool = True
    by_notes: bool = True
    by_model: bool = True
    keep_least: int = 10_000
    keep_texts: int = 5
    keep_most: int = 40_000
    files: int = 5
    file: int = 5_000
    files_total: int = 50_000
    skill: int = 5_000
    skills_total: int = 25_000
    failures: int = 3


@attrs.frozen(kw_only=True)
class ExtractionSettings:
    """`[layers.extraction]`, the fifth layer."""

    enabled: bool | None = None
    every: int = 1
    turns: int = 5
    drain: float = 60.0


@attrs.frozen(kw_only=True)
class DreamingSettings:
    """`[layers.dreaming]`, the sixth layer."""

    enabled: bool | None = None
    hours: float = 24.0
    scan_minutes: float = 10.0
    sessions: int = 5
    turns: int = 30
    deletions: Deletions = "ask"
    drain: float = 60.0


@attrs.frozen(kw_only=True)
class RecallSettings:
    """`[memory.recall]`."""

    enabled: bool = True
    by: Recaller | None = None
    model: str = "sonnet"
    most: int = 5
    scan: int = 200
    file_lines: int = 200
    file_bytes: int = 4_096
    session_bytes: int = 61_440
    stale_days: int = 2


@attrs.frozen(kw_only=True)
class MemorySettings:
    """`[memory]`."""

    enabled: bool = True
    daily_log: bool = False
    search_past: bool = False
    guidelines: Path | None = None
    recall: RecallSettings = RecallSettings()


@attrs.frozen(kw_only=True)
class WindowSettings:
    """`[layers.window]`."""

    compact_window: int | None = None


@attrs.frozen(kw_only=True)
class LayersSettings:
    """`[layers]`."""

    results: ResultSettings = ResultSettings()
    clearing: ClearingSettings = ClearingSettings()
    notes: NotesSettings = NotesSettings()
    compaction: CompactionSettings = CompactionSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    dreaming: DreamingSettings = DreamingSettings()
    window: WindowSettings = WindowSettings()


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
    layers: LayersSettings = LayersSettings()
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
