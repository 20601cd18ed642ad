"""Colours that a kind of agent can have on a terminal."""

import re

COLORS = {
    "red": "#ef4444",
    "orange": "#f97316",
    "amber": "#f59e0b",
    "gold": "#eab308",
    "yellow": "#facc15",
    "green": "#22c55e",
    "teal": "#14b8a6",
    "cyan": "#06b6d4",
    "blue": "#3b82f6",
    "indigo": "#6366f1",
    "violet": "#8b5cf6",
    "purple": "#a855f7",
    "magenta": "#d946ef",
    "pink": "#ec4899",
    "gray": "#9ca3af",
    "white": "#f9fafb",
}
"""By the names that people use in definitions; tones that can be read on dark and on light."""
_HEX = re.compile(r"#[0-9a-fA-F]{6}")


def color_code(word: str) -> str | None:
    """The colour that *word* is, as `#rrggbb`: a name, or such a code itself; None for neither."""
    return word.lower() if _HEX.fullmatch(word) else COLORS.get(word.casefold().replace("grey", "gray"))
