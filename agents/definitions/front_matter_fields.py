"""Fields of front matter, parsed one by one with their problems, and color names."""

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
"""Minimum similarity of a misspelling to a known name.

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
"""Color codes by common color names; readable on dark and on light terminals."""

_HEX = re.compile(r"#[0-9a-fA-F]{6}")


@attrs.define(eq=False, kw_only=True)
class FrontMatterFields:
    """Parses the fields of one file; subclasses define the known keys."""

    path: Path
    content: str
    front: FrontMatter = attrs.field(
        default=attrs.Factory(lambda self: parse_front_matter(self.content), takes_self=True), init=False
    )
    problems: list[FileProblem] = attrs.field(factory=list, init=False)
    spelling: dict[str, str] = attrs.field(factory=dict, init=False)
    """Known keys of the file, each with its spelling in the file."""

    keys: ClassVar[Sequence[str]] = ()
    """Keys that are used."""
    set_aside: ClassVar[Mapping[str, str]] = {}
    """Keys that are known but not used, with the reason."""

    def sorted_problems(self) -> list[FileProblem]:
        """Return the problems in the order of their lines."""
        return sorted(self.problems, key=lambda problem: problem.line)

    def add_problem(self, severity: Severity, line: int, reason: str) -> None:
        """Add a problem in *line*."""
        self.problems.append(FileProblem(path=self.path, line=line, severity=severity, reason=reason))

    def add_error(self, key: str, severity: Severity, reason: str) -> None:
        """Add a problem of *key*, with the line of the key."""
        self.add_problem(severity, self.line_of(key), reason)

    def has_front_matter(self) -> bool:
        """True if the file has front matter. Reports its notes and unused keys, or else an error.

        Matches the keys of the file with the known keys, including other spellings.
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
        """Report an unused *key*, with a suggestion if it may be misspelled."""
        if reason := next((why for known, why in self.set_aside.items() if squash(known) == squash(key)), None):
            self.add_problem("note", line, f"{quote_text(key)} is ignored: {reason}")
            return
        hint = spelling_hint(key, self.keys)
        self.add_problem("warning" if hint else "note", line, f"unknown key {quote_text(key)} is ignored{hint}")

    def line_of(self, key: str) -> int:
        """Return the line of *key*, or else of the front matter."""
        return self.front.lines.get(self.spelling.get(key, key), self.front.line or 1)

    def value(self, key: str) -> Value | None:
        """Return the value of *key*; None if it is missing or empty."""
        value = self.front.fields.get(self.spelling.get(key, key))
        return value.strip() or None if isinstance(value, str) else value

    def text(self, key: str) -> str | None:
        """Return the text of *key*; None if it is missing or not a text."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        found = "a list" if isinstance(value, list) else "a mapping"
        self.add_error(key, "warning", f"{key} must be text, not {found}, and is ignored")
        return None

    def choice(self, key: str, choices: Sequence[Choice]) -> Choice | None:
        """Return the choice that *key* names; None if it names none."""
        word = self.text(key)
        chosen = next((choice for choice in choices if choice == word), None)
        if word is not None and chosen is None:
            self.add_error(key, "warning", f"{key} {quote_text(word)} is ignored; it can be {', '.join(choices)}")
        return chosen

    def count(self, key: str) -> int | None:
        """Return the positive integer of *key*; None if there is none."""
        word = self.text(key)
        if word is None:
            return None
        if word.isdecimal() and len(word) < 10 and int(word) > 0:
            return int(word)
        self.add_error(key, "warning", f"{key} {quote_text(word)} is ignored; it must be a whole number above 0")
        return None

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True if the value of *key* means yes."""
        word = self.text(key)
        if word is not None and word.casefold() not in FLAGS:
            self.add_error(key, "warning", f"{key} {quote_text(word)} is ignored; it can be true or false")
        return default if word is None else FLAGS.get(word.casefold(), default)


def spelling_hint(name: str, known: Iterable[str]) -> str:
    """Return a suggestion from *known* for *name*, as the end of a sentence; empty if none is similar."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=SIMILARITY)
    return f"; did you mean {folded[near[0]]}?" if near else ""


def squash(key: str) -> str:
    """Normalize *key*, so that `maxTurns`, `max-turns` and `max_turns` are equal."""
    return key.casefold().replace("-", "").replace("_", "")


def color_code(word: str) -> str | None:
    """Return the color *word* as `#rrggbb`, from a name or such a code; None for neither."""
    return word.lower() if _HEX.fullmatch(word) else COLORS.get(word.casefold().replace("grey", "gray"))
