"""What an agent is told of skills before its task."""

import os

from coterie.agents.definitions import Definition
from coterie.agents.definitions.tool_list import bare_name
from coterie.agents.models import Model
from coterie.agents.skills import Skills, listing
from coterie.agents.tokens import window_of
from coterie.orchestrator.settings import Settings

TOOL = "Skill"


def listing_text(found: Skills, settings: Settings, model: Model) -> str:
    """The list of skills for an agent on *model*; empty if there is nothing to tell. Raises `ConfigInvalid`."""
    compact_window = settings.layers.window.compact_window
    window = window_of(settings.model, model, environ=os.environ, compact_window=compact_window)
    return listing(found.for_model, int(window * settings.skills.listing))


def may_load(kind: Definition | None) -> bool:
    """Whether the limits of its *kind* leave an agent the tool that loads skills."""
    if kind is None:
        return True
    is_listed = kind.tools is None or TOOL in map(bare_name, kind.tools)
    return is_listed and not {TOOL, "*"} & set(kind.disallowed_tools)
