"""A definition's text, read as people write it: what cannot be used is left out and told, with its line."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, get_args

import attrs

from coterie.agents.definitions.definition import Definition, Scope
from coterie.agents.definitions.problem import Problem, Severity
from coterie.agents.definitions.tool_list import bare_name, tool_names
from coterie.agents.models import known_models
from coterie.agents.nearest import nearest
from coterie.agents.permissions import MODES
from coterie.agents.spawning import Isolation, MemoryScope, Process
from coterie.agents.tools import NAMES
from coterie.memory.fields import shown
from coterie.memory.front_matter import FrontMatter, Value, read_front_matter

KEYS = (
    *("name", "description", "tools", "disallowedTools", "model", "permissionMode"),
    *("maxTurns", "memory", "background", "process", "isolation"),
)
EXAMPLES = {"name": "name: reviewer", "description": "description: Reviews a change. Use after every edit."}
"""The keys a definition cannot do without."""

SIMILARITY = 0.75
"""Files bring many keys and tools of other products; only a near miss of ours is a misspelling."""
FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Choice = TypeVar("Choice", bound=str)


def read_definition(text: str, *, path: Path, scope: Scope) -> tuple[Definition | None, list[Problem]]:
    """Read *text*, the content of *path*, whatever it is.

    Without a name and a description there is no definition; the problems say why. Raises `ConfigInvalid` only when
    the table of models cannot be used.
    """
    reader = _Reader(path=path, front=read_front_matter(text))
    definition = reader.read(scope)
    return definition, sorted(reader.problems, key=lambda problem: problem.line)


@attrs.define(eq=False, kw_only=True)
class _Reader:
    path: Path
    front: FrontMatter
    problems: list[Problem] = attrs.field(factory=list)
    spelling: dict[str, str] = attrs.field(factory=dict)
    """Our key -> as the file spells it."""

    def read(self, scope: Scope) -> Definition | None:
        for note in self.front.notes:
            self._tell("note", note.line, note.reason)
        if self.front.line is None:
            self._tell("error", 1, "no front matter: begin with a line `---`, then name and description, then `---`")
            return None
        self._match_keys()
        name, description = self._required("name"), self._required("description")
        if name is None or description is None:
            return None
        if not name.isprintable():
            self._complain("name", "error", f"{shown(name)} cannot be a name: it must be one line of plain text")
            return None
        return self._definition(name, description, scope)

    def _definition(self, name: str, description: str, scope: Scope) -> Definition:
        prompt = self.front.body.strip()
        if not prompt:
            self._tell("warning", self.front.line or 1, "there is no prompt: say below the front matter how to work")
        return Definition(
            name=name,
            description=description,
            prompt=prompt,
            tools=self._tools("tools"),
            disallowed_tools=self._tools("disallowedTools") or (),
            model=self._model(),
            permission_mode=self._choice("permissionMode", MODES),
            max_turns=self._count("maxTurns"),
            memory=self._choice("memory", get_args(MemoryScope)),
            background=self._flag("background"),
            process=self._choice("process", get_args(Process)) or "own",
            isolation=self._choice("isolation", get_args(Isolation)),
            scope=scope,
            source=self.path,
        )

    def _tell(self, severity: Severity, line: int, reason: str) -> None:
        self.problems.append(Problem(path=self.path, line=line, severity=severity, reason=reason))

    def _complain(self, key: str, severity: Severity, reason: str) -> None:
        line = self.front.lines.get(self.spelling.get(key, key), self.front.line or 1)
        self._tell(severity, line, reason)

    def _match_keys(self) -> None:
        """Find out which of our keys the file has, also under another spelling, and tell of all the others."""
        squashed = {_squash(key): key for key in KEYS}
        self.spelling = {key: key for key in KEYS if key in self.front.fields}
        for written, line in self.front.lines.items():
            meant = squashed.get(_squash(written))
            if written in self.spelling:
                continue
            if meant is not None and meant not in self.spelling:
                self.spelling[meant] = written
                self._tell("note", line, f"{shown(written)} is read as {meant!r}")
            else:
                self._tell_unknown(written, line)

    def _tell_unknown(self, key: str, line: int) -> None:
        if _squash(key) == "allowedtools":
            self._tell("warning", line, f"unknown key {shown(key)} is ignored; `tools` says what an agent may use")
        else:
            hint = _hint(key, KEYS)
            self._tell("warning" if hint else "note", line, f"unknown key {shown(key)} is ignored{hint}")

    def _value(self, key: str) -> Value | None:
        """What the file says for *key*; None if nothing."""
        value = self.front.fields.get(self.spelling.get(key, key))
        return value.strip() or None if isinstance(value, str) else value

    def _text(self, key: str) -> str | None:
        value = self._value(key)
        if value is None or isinstance(value, str):
            return value
        self._complain(key, "warning", f"{key} must be text, not {_kind(value)}, and is ignored")
        return None

    def _required(self, key: str) -> str | None:
        text = self._text(key)
        metadata = self.front.fields.get("metadata")
        if text is None and isinstance(metadata, dict) and isinstance(nested := metadata.get(key), str):
            text = nested.strip() or None
            self._tell("note", self.front.lines["metadata"], f"{key} is taken from metadata; write it at the margin")
        if text is None:
            self._complain(key, "error", f"there is no {key}: add a line such as `{EXAMPLES[key]}`")
        return text

    def _tools(self, key: str) -> tuple[str, ...] | None:
        value = self._value(key)
        if value is None:
            if key in self.spelling:
                self._complain(key, "warning", f"{key} is empty and is ignored; `[]` is an empty list")
            return None
        if isinstance(value, dict):
            # A limit that cannot be read must not become no limit.
            self._complain(key, "warning", f"{key} must be a list, not a mapping; until then no tool may be used")
            return () if key == "tools" else ("*",)
        names = tool_names(value)
        if names is None:
            return None if key == "tools" else ("*",)
        for entry in names:
            self._check_tool(key, entry)
        return tuple(names)

    def _check_tool(self, key: str, entry: str) -> None:
        name, known = bare_name(entry), NAMES
        if "(" in entry and not entry.endswith(")"):
            self._complain(key, "warning", f"{shown(entry)} in {key} has no closing bracket")
        if name not in known and not name.startswith("mcp__"):
            self._complain(key, "note", f"unknown tool {shown(name)} in {key}{_hint(name, known)}")

    def _model(self) -> str | None:
        name = self._text("model")
        if name is None or name == "inherit":
            return None
        table = known_models()
        if table.find(name) is not None:
            return name
        near = nearest(name, [*table.models, *table.aliases])
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(table.aliases)}"
        self._complain("model", "warning", f"{shown(name)} is not a known model and is ignored; {hint}")
        return None

    def _choice(self, key: str, choices: Sequence[Choice]) -> Choice | None:
        word = self._text(key)
        chosen = next((choice for choice in choices if choice == word), None)
        if word is not None and chosen is None:
            self._complain(key, "warning", f"{key} is {shown(word)} and is ignored; it can be {', '.join(choices)}")
        return chosen

    def _count(self, key: str) -> int | None:
        word = self._text(key)
        if word is None:
            return None
        if word.isdecimal() and len(word) < 10 and int(word) > 0:
            return int(word)
        self._complain(key, "warning", f"{key} is {shown(word)} and is ignored; it must be a whole number above 0")
        return None

    def _flag(self, key: str) -> bool:
        word = self._text(key)
        if word is not None and word.casefold() not in FLAGS:
            self._complain(key, "warning", f"{key} is {shown(word)} and is ignored; it can be true or false")
        return word is not None and FLAGS.get(word.casefold(), False)


def _hint(name: str, known: Sequence[str]) -> str:
    """The one of *known* that *name* is a misspelling of, as the end of a sentence; empty if it is none."""
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=SIMILARITY)
    return f"; did you mean {folded[near[0]]}?" if near else ""


def _squash(key: str) -> str:
    return key.casefold().replace("-", "").replace("_", "")


def _kind(value: Value) -> str:
    return "a list" if isinstance(value, list) else "a mapping"
