"""Parser of front matter (the YAML header of a Markdown file), which reports problems by line; also color names."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import attrs

from coterie.agents.definitions.definition_files import FileProblem, Severity
from coterie.memory.front_matter.front_matter import FrontMatter, parse_front_matter
from coterie.memory.front_matter.yaml_fields import Value, quote_text

SIMILARITY = 0.75
"""Minimum similarity, from 0 to 1, at which an unknown name is reported as a misspelling of a known name.

It is high because files contain many keys and tools of other products.
"""
FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Choice = TypeVar("Choice", bound=str)
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
"""Color codes of the color names that a definition may use; readable on dark and on light terminals."""

_HEX = re.compile(r"#[0-9a-fA-F]{6}")


@attrs.define(eq=False, kw_only=True)
class FrontMatterFields:
    """Parser of the front matter of one file, which collects the problems; subclasses define the known keys."""

    path: Path
    content: str
    front: FrontMatter = attrs.field(
        default=attrs.Factory(lambda self: parse_front_matter(self.content), takes_self=True), init=False
    )
    problems: list[FileProblem] = attrs.field(factory=list, init=False)
    spelling: dict[str, str] = attrs.field(factory=dict, init=False)
    """Known keys that the file contains, each with its spelling there, such as `max-turns` for `maxTurns`."""

    keys: ClassVar[Sequence[str]] = ()
    """Keys that have a meaning in this kind of file; defined by the subclass."""
    set_aside: ClassVar[Mapping[str, str]] = {}
    """Keys that may occur but are ignored, each with the reason that the user gets in a note."""

    def sorted_problems(self) -> list[FileProblem]:
        """Return the problems that were found so far, in the order of their lines."""
        return sorted(self.problems, key=lambda problem: problem.line)

    def add_problem(self, severity: Severity, line: int, reason: str) -> None:
        """Record a problem in the line *line* of the file."""
        self.problems.append(FileProblem(path=self.path, line=line, severity=severity, reason=reason))

    def add_error(self, key: str, severity: Severity, reason: str) -> None:
        """Record a problem of any *severity* with the key *key*, in the line of the key."""
        self.add_problem(severity, self.line_of(key), reason)

    def has_front_matter(self) -> bool:
        """True if the file has front matter. Must be called before values are read.

        Also finds the known keys of the file, in any spelling. Records problems such as missing front matter or unknown
        keys.
        """
        for note in self.front.notes:
            self.add_problem("note", note.line, note.reason)
        if self.front.line is None:
            reason = "no front matter: start with a line `---`, then name and description, then `---`"
            self.add_problem("error", 1, reason)
            return False
        squashed = {squash(key): key for key in self.keys}
        self.spelling = {key: key for key in self.keys if key in self.front.fields}
        for written, line in self.front.lines.items():
            known_key = squashed.get(squash(written))
            if written in self.spelling:
                continue
            if known_key is not None and known_key not in self.spelling:
                self.spelling[known_key] = written
                self.add_problem("note", line, f"{quote_text(written)} is interpreted as {known_key!r}")
            else:
                self.report_unknown(written, line)
        return True

    def report_unknown(self, key: str, line: int) -> None:
        """Record a problem for *key*, which the file contains but which is not used; suggests a similar key."""
        if reason := next((why for known, why in self.set_aside.items() if squash(known) == squash(key)), None):
            self.add_problem("note", line, f"{quote_text(key)} is ignored: {reason}")
            return
        hint = spelling_hint(key, self.keys)
        self.add_problem("warning" if hint else "note", line, f"unknown key {quote_text(key)} is ignored{hint}")

    def line_of(self, key: str) -> int:
        """Return the line number of *key* in the file; without the key, the first line of the front matter."""
        return self.front.lines.get(self.spelling.get(key, key), self.front.line or 1)

    def value(self, key: str) -> Value | None:
        """Return the value of *key*, text without surrounding blanks; None if it is missing or empty text."""
        value = self.front.fields.get(self.spelling.get(key, key))
        return value.strip() or None if isinstance(value, str) else value

    def text(self, key: str) -> str | None:
        """Return the value of *key* if it is text, else None; another value is a warning."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        found = "a list" if isinstance(value, list) else "a mapping"
        self.add_error(key, "warning", f"{key} must be text, not {found}, and is ignored")
        return None

    def choice(self, key: str, choices: Sequence[Choice]) -> Choice | None:
        """Return the value of *key* if it is one of *choices*, else None; another value is a warning."""
        word = self.text(key)
        chosen = next((choice for choice in choices if choice == word), None)
        if word is not None and chosen is None:
            self.add_error(key, "warning", f"{key} {quote_text(word)} is ignored; it can be {', '.join(choices)}")
        return chosen

    def count(self, key: str) -> int | None:
        """Return the value of *key* if it is a positive integer, else None; another value is a warning."""
        word = self.text(key)
        if word is None:
            return None
        if word.isdecimal() and len(word) < 10 and int(word) > 0:
            return int(word)
        self.add_error(key, "warning", f"{key} {quote_text(word)} is ignored; it must be a whole number above 0")
        return None

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True if the value of *key* means yes; *default* if it is missing, or, with a warning, not a boolean."""
        word = self.text(key)
        if word is not None and word.casefold() not in FLAGS:
            self.add_error(key, "warning", f"{key} {quote_text(word)} is ignored; it can be true or false")
        return default if word is None else FLAGS.get(word.casefold(), default)


def spelling_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean Read?` with the most similar name in *known*; empty if there is none."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=SIMILARITY)
    return f"; did you mean {folded[near[0]]}?" if near else ""


def squash(key: str) -> str:
    """Return *key* in lower case without `-` and `_`, so that `maxTurns`, `max-turns` and `max_turns` compare equal."""
    return key.casefold().replace("-", "").replace("_", "")


def color_code(word: str) -> str | None:
    """Return the color code `#rrggbb` for *word*, which is a color name or such a code; None if it is neither."""
    return word.lower() if _HEX.fullmatch(word) else COLORS.get(word.casefold().replace("grey", "gray"))
