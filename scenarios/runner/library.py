"""The scenarios that ship, and those of a user: found by name, or by file."""

from pathlib import Path

from coterie.agents.errors import ConfigInvalid
from coterie.agents.nearest import suggestion
from coterie.scenarios.runner.reading import SUFFIX, load_story
from coterie.scenarios.runner.story import Story

STORIES = Path(__file__).parents[1] / "stories"


def shipped() -> list[Path]:
    """The files that ship, by name."""
    return sorted(STORIES.glob(f"*{SUFFIX}"))


def find_story(name: str) -> Path:
    """The file that *name* is, or the shipped one of that name. Raises `ConfigInvalid`."""
    path = Path(name)
    if path.suffix or len(path.parts) > 1:
        if path.is_file():
            return path
        raise ConfigInvalid("scenario", f"there is no file {name}")
    names = {path.stem: path for path in shipped()}
    if name not in names:
        raise ConfigInvalid("scenario", f"none is called {name!r}; {suggestion(name, names)}")
    return names[name]


def load_all() -> list[Story]:
    """All that ship. Raises `StoryInvalid`."""
    return [load_story(path) for path in shipped()]
