"""What an agent's process is started with: everything that it does not find in the session's directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.mailbox.ids import MessageId
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.settings.schema import SETTINGS


@attrs.frozen(kw_only=True)
class Duty:
    """One start of one agent, and its task."""

    session: str
    """The session's id."""
    name: str
    incarnation: int
    parent: str | None
    """Who is told what came of it; None for the lead."""
    report: MessageId
    """The id of that message: whoever sends it, the agent or the root for a dead one, the parent gets it once."""
    task: str
    model: str
    settings: Settings
    definition: str | None = None
    """What kind of agent it is."""
    server: str | None = None
    """The URL of the embedded server, where that plays the model."""
    is_bare: bool = False
    fork: str | None = None
    """The file of the fork point it begins with."""
    stays: bool = False
    """Whether it waits for messages when the task is done."""
    above: tuple[Settings, ...] = ()
    """Those of its parents, the nearest first."""

    def to_bytes(self) -> bytes:
        """One JSON object."""
        settings = {"settings": _shown(self.settings), "above": [_shown(each) for each in self.above]}
        return msgspec.json.encode(attrs.asdict(self, recurse=False) | settings, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Duty":
        """What `to_bytes` wrote."""
        members: dict[str, Any] = msgspec.json.decode(data)
        settings = {"settings": _read(members["settings"]), "above": tuple(map(_read, members["above"]))}
        return cls(**members | settings)


def _shown(settings: Settings) -> Mapping[str, Any]:
    return {
        "values": {key: _value(settings, key) for key in SETTINGS},
        "sources": {key: settings.item_sources(key) for key in SETTINGS},
        "final": [key for key in SETTINGS if settings.is_final(key)],
    }


def _value(settings: Settings, key: str) -> Any:
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _read(shown: Mapping[str, Any]) -> Settings:
    values = {
        key: msgspec.convert(value, SETTINGS[key].kind, dec_hook=_from_text, strict=False)
        for key, value in shown["values"].items()
        if value is not None
    }
    sources = {key: tuple(found) for key, found in shown["sources"].items() if found}
    return Settings.build(values, sources, frozenset(shown["final"]))


def _from_text(kind: type, value: Any) -> Any:
    assert kind is Path, f"no setting is a {kind.__name__}"
    return Path(value)
