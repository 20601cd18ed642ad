"""Settings on their way to another process: every value, and where it stands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from coterie.orchestrator.settings.schema import SETTINGS, Settings


def shown(settings: Settings) -> Mapping[str, Any]:
    """*settings* as JSON can hold them; numbers and paths may still be themselves."""
    return {
        "values": {key: _value(settings, key) for key in SETTINGS},
        "sources": {key: settings.item_sources(key) for key in SETTINGS},
        "final": [key for key in SETTINGS if settings.is_final(key)],
    }


def read(carried: Mapping[str, Any]) -> Settings:
    """What `shown` gave, after JSON."""
    values = {
        key: msgspec.convert(value, SETTINGS[key].kind, dec_hook=_from_text, strict=False)
        for key, value in carried["values"].items()
        if value is not None
    }
    sources = {key: tuple(found) for key, found in carried["sources"].items() if found}
    return Settings.build(values, sources, frozenset(carried["final"]))


def _value(settings: Settings, key: str) -> Any:
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _from_text(kind: type, value: Any) -> Any:
    assert kind is Path, f"no setting is a {kind.__name__}"
    return Path(value)
