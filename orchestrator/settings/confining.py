"""What a project may say of what holds agents: it can tighten the sandbox, and open nothing."""

from collections.abc import Mapping
from typing import Any, get_args

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.settings.schema import SandboxMode, SandboxSettings
from coterie.orchestrator.settings.sources import Given

MODES = get_args(SandboxMode)
NOT_FOR_PROJECTS = {
    "sandbox.write": "it would open your files to commands",
    "sandbox.auto_allow": "it would let commands run that you were not asked about",
    "web.hosts": "what agents read here could be sent there",
}


def tightening(given: Given, values: Mapping[str, Any]) -> Given:
    """*given*, of a project, without what would loosen the sandbox that *values* of weightier people make.

    Raises `ConfigInvalid` for what is not a project's to say at all.
    """
    for key, why in NOT_FOR_PROJECTS.items():
        if key in given.values:
            raise ConfigInvalid(given.source, f"{key} may not be set by a project: {why}; set it in your own settings")
    kept = dict(given.values)
    usual = SandboxSettings()
    mode = values.get("sandbox.mode", usual.mode)
    if MODES.index(kept.get("sandbox.mode", mode)) < MODES.index(mode):
        del kept["sandbox.mode"]
    if kept.get("sandbox.network") and not values.get("sandbox.network", usual.network):
        del kept["sandbox.network"]
    return attrs.evolve(given, values=kept)


def narrowest(own: SandboxSettings, *above: SandboxSettings) -> SandboxSettings:
    """The sandbox of an agent: no wider than that of any agent *above* it."""
    every = (own, *above)
    return SandboxSettings(
        mode=max((each.mode for each in every), key=MODES.index),
        network=all(each.network for each in every),
        write=tuple(path for path in own.write if all(_is_open(path, each) for each in above)),
        hide=tuple(dict.fromkeys(path for each in every for path in each.hide)),
        auto_allow=all(each.auto_allow for each in every),
    )


def _is_open(path: Any, settings: SandboxSettings) -> bool:
    return any(path.is_relative_to(place) for place in settings.write)
