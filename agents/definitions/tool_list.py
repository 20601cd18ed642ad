"""The tools a definition names, however they are separated."""

from collections.abc import Iterator
from itertools import pairwise

from coterie.memory.front_matter import Value

ALL = frozenset({"*", "all", "all tools"})
OTHER_NAMES = {
    "Task": ("Agent",),
    "MultiEdit": ("Edit",),
    "LS": ("Glob",),
    "TodoRead": ("TaskList",),
    "TodoWrite": ("TaskCreate", "TaskUpdate"),
}
"""What tools of other products, or of earlier days, are here; limits that name them are to hold."""


def tool_names(value: Value) -> list[str] | None:
    """The entries of *value*, a list or one string, in order and once each; None for everything.

    An entry may carry arguments, as in `Bash(git add:*, git commit:*)`.
    """
    texts = list(_texts(value))
    if any(text.strip().casefold() in ALL for text in texts):
        return None
    # Joined first: YAML cuts `[Bash(a, b), Read]` at the comma inside the brackets.
    return list(dict.fromkeys(_split(", ".join(texts))))


def bare_name(entry: str) -> str:
    """The tool that *entry* is about, without its arguments."""
    return entry.partition("(")[0]


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        # `- Bash(git: x)` is a mapping in YAML.
        yield from (f"{key}: {text}" for key, below in value.items() for text in _texts(below))


def _split(text: str) -> list[str]:
    """Cut at commas and spaces that stand outside brackets."""
    cuts, depth = [-1], 0
    for at, character in enumerate(text):
        depth = max(0, depth + (character == "(") - (character == ")"))
        if depth == 0 and (character == "," or character.isspace()):
            cuts.append(at)
    entries = (text[start + 1 : end].strip("\"'`") for start, end in pairwise([*cuts, len(text)]))
    return [entry for entry in entries if entry]
