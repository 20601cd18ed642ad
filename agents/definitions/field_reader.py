"""Fields of front matter, one by one: what cannot be used is left out and told, with its line."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import attrs

from coterie.agents.definitions.problem import Problem, Severity
from coterie.memory.fields import shown
from coterie.memory.front_matter import FrontMatter, Value

SIMILARITY = 0.75
"""Files bring many keys and tools of other products; only a near miss of ours is a misspelling."""
FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Choice = TypeVar("Choice", bound=str)


@attrs.define(eq=False, kw_only=True)
class FieldReader:
    """Reads the fields of one file; who reads a kind of file says which keys there are."""

    path: Path
    front: FrontMatter
    problems: list[Problem] = attrs.field(factory=list)
    spelling: dict[str, str] = attrs.field(factory=dict)
    """Our key -> as the file spells it."""

    keys: ClassVar[Sequence[str]] = ()
    """Those that are used."""
    set_aside: ClassVar[Mapping[str, str]] = {}
    """Those that are known and not used, with the reason."""

    def sorted_problems(self) -> list[Problem]:
        """What was told, in the order of lines."""
        return sorted(self.problems, key=lambda problem: problem.line)

    def tell(self, severity: Severity, line: int, reason: str) -> None:
        """Tell of something in *line*."""
        self.problems.append(Problem(path=self.path, line=line, severity=severity, reason=reason))

    def complain(self, key: str, severity: Severity, reason: str) -> None:
        """Tell of something about *key*, where the file has it."""
        self.tell(severity, self.front.lines.get(self.spelling.get(key, key), self.front.line or 1), reason)

    def match_keys(self) -> None:
        """Find out which of our keys the file has, also under another spelling, and tell of all the others."""
        squashed = {squash(key): key for key in self.keys}
        self.spelling = {key: key for key in self.keys if key in self.front.fields}
        for written, line in self.front.lines.items():
            meant = squashed.get(squash(written))
            if written in self.spelling:
                continue
            if meant is not None and meant not in self.spelling:
                self.spelling[meant] = written
                self.tell("note", line, f"{shown(written)} is read as {meant!r}")
            else:
                self.tell_unknown(written, line)

    def tell_unknown(self, key: str, line: int) -> None:
        """Tell of a *key* that is not used: it may be misspelt."""
        if reason := next((why for known, why in self.set_aside.items() if squash(known) == squash(key)), None):
            self.tell("note", line, f"{shown(key)} is ignored: {reason}")
            return
        hint = hint_at(key, self.keys)
        self.tell("warning" if hint else "note", line, f"unknown key {shown(key)} is ignored{hint}")

    def value(self, key: str) -> Value | None:
        """What the file says for *key*; None if nothing."""
        value = self.front.fields.get(self.spelling.get(key, key))
        return value.strip() or None if isinstance(value, str) else value

    def text(self, key: str) -> str | None:
        """The text of *key*; None if there is none."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        self.complain(key, "warning", f"{key} must be text, not {_kind(value)}, and is ignored")
        return None

    def choice(self, key: str, choices: Sequence[Choice]) -> Choice | None:
        """The one of *choices* that *key* names."""
        word = self.text(key)
        chosen = next((choice for choice in choices if choice == word), None)
        if word is not None and chosen is None:
            self.complain(key, "warning", f"{key} is {shown(word)} and is ignored; it can be {', '.join(choices)}")
        return chosen

    def count(self, key: str) -> int | None:
        """The whole number above 0 that *key* has."""
        word = self.text(key)
        if word is None:
            return None
        if word.isdecimal() and len(word) < 10 and int(word) > 0:
            return int(word)
        self.complain(key, "warning", f"{key} is {shown(word)} and is ignored; it must be a whole number above 0")
        return None

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Whether *key* says yes."""
        word = self.text(key)
        if word is not None and word.casefold() not in FLAGS:
            self.complain(key, "warning", f"{key} is {shown(word)} and is ignored; it can be true or false")
        return default if word is None else FLAGS.get(word.casefold(), default)


def hint_at(name: str, known: Iterable[str]) -> str:
    """The one of *known* that *name* is a misspelling of, as the end of a sentence; empty if it is none."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=SIMILARITY)
    return f"; did you mean {folded[near[0]]}?" if near else ""


def squash(key: str) -> str:
    """*key* without what tells `maxTurns` from `max-turns` and `max_turns`."""
    return key.casefold().replace("-", "").replace("_", "")


def _kind(value: Value) -> str:
    return "a list" if isinstance(value, list) else "a mapping"
