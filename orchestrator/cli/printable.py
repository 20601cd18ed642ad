"""Text of others on a terminal: what a model, a file or a command wrote must not act on it."""

import re

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movements, modes
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, the clipboard
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these reorder what is seen
    "\U000e0000-\U000e007f]"  # and these hide
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """*text* without escape sequences, control characters and marks that reorder; lines and tabs stay."""
    text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str, limit: int) -> str:
    """The beginning of *text*, in at most *limit* characters and on one line."""
    words = " ".join(printable(text).split())
    return words if len(words) <= limit else words[: max(limit - 3, 0)] + "..."


def escaped(text: str) -> str:
    """*text* with everything that cannot be seen written out, so that nothing hides in it; lines stay lines."""
    lines = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.split("\n"))
    return "\n".join(lines)
