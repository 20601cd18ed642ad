"""A definition's text, read as people write it: what cannot be used is left out and told, with its line."""

from pathlib import Path
from typing import get_args

import attrs

from coterie.agents.definitions.colors import COLORS, color_code
from coterie.agents.definitions.definition import Definition, Scope
from coterie.agents.definitions.field_reader import FieldReader, hint_at, squash
from coterie.agents.definitions.hook_field import read_hook_field
from coterie.agents.definitions.problem import Problem
from coterie.agents.definitions.server_list import ServerList, read_server_list
from coterie.agents.definitions.tool_list import OTHER_NAMES, bare_name, tool_names
from coterie.agents.models import Effort, known_models
from coterie.agents.nearest import nearest
from coterie.agents.permissions import MODES
from coterie.agents.spawning import Isolation, MemoryScope, Process
from coterie.agents.tools import NAMES
from coterie.memory.fields import shown
from coterie.memory.front_matter import read_front_matter

KEYS = (
    *("name", "description", "tools", "disallowedTools", "model", "permissionMode"),
    *("maxTurns", "memory", "background", "process", "isolation", "skills", "hooks", "mcpServers"),
    *("effort", "color", "initialPrompt"),
)
EXAMPLES = {"name": "name: reviewer", "description": "description: Reviews a change. Use after every edit."}
"""The keys a definition cannot do without."""

UNUSED = "nothing here depends on it"
SET_ASIDE = {
    **dict.fromkeys(("type", "category", "tags", "version", "author", "created", "updated", "metadata"), UNUSED),
    **dict.fromkeys(("capabilities", "priority", "expertise_level", "platform", "sparc_phase", "license"), UNUSED),
    **dict.fromkeys(("triggers", "examples"), "`description` alone says when to use it"),
    **dict.fromkeys(("constraints", "behavior", "communication", "modes"), "say it in the prompt, below"),
    **dict.fromkeys(("integration", "optimization", "execution"), "say it in the prompt, below"),
    "limits": "`maxTurns` limits an agent, and settings what it may spend",
    "temperature": "newer models take none; `effort` says how hard one tries",
}
"""Keys that real files have and that are not used, with what to do instead, if there is something."""


def read_definition(text: str, *, path: Path, scope: Scope) -> tuple[Definition | None, list[Problem]]:
    """Read *text*, the content of *path*, whatever it is.

    Without a name and a description there is no definition; the problems say why. Raises `ConfigInvalid` only when
    the table of models cannot be used.
    """
    reader = _Reader(path=path, front=read_front_matter(text))
    definition = reader.read(scope)
    if definition is not None:
        definition = attrs.evolve(definition, hooks=read_hook_field(reader, text))
    return definition, reader.sorted_problems()


class _Reader(FieldReader):
    keys = KEYS
    set_aside = SET_ASIDE

    def read(self, scope: Scope) -> Definition | None:
        for note in self.front.notes:
            self.tell("note", note.line, note.reason)
        if self.front.line is None:
            self.tell("error", 1, "no front matter: begin with a line `---`, then name and description, then `---`")
            return None
        self.match_keys()
        name, description = self._required("name"), self._required("description")
        if name is None or description is None:
            return None
        if not name.isprintable():
            self.complain("name", "error", f"{shown(name)} cannot be a name: it must be one line of plain text")
            return None
        return self._definition(name, description, scope)

    def _definition(self, name: str, description: str, scope: Scope) -> Definition:
        prompt = self.front.body.strip()
        if not prompt:
            self.tell("warning", self.front.line or 1, "there is no prompt: say below the front matter how to work")
        servers = self._servers()
        return Definition(
            name=name,
            description=description,
            prompt=prompt,
            tools=self._tools("tools"),
            disallowed_tools=self._tools("disallowedTools") or (),
            model=self._model(),
            effort=self._effort(),
            permission_mode=self.choice("permissionMode", MODES),
            max_turns=self.count("maxTurns"),
            memory=self.choice("memory", get_args(MemoryScope)),
            skills=self._skills(),
            background=self.flag("background"),
            process=self.choice("process", get_args(Process)) or "own",
            isolation=self.choice("isolation", get_args(Isolation)),
            mcp_servers=None if servers is None else servers.names,
            own_servers=() if servers is None else servers.own,
            color=self._color(),
            initial_prompt=self.text("initialPrompt"),
            scope=scope,
            source=self.path,
        )

    def tell_unknown(self, key: str, line: int) -> None:
        """As above, and what to write instead of a key that people take from elsewhere."""
        if squash(key) == "allowedtools":
            self.tell("warning", line, f"unknown key {shown(key)} is ignored; `tools` says what an agent may use")
        else:
            super().tell_unknown(key, line)

    def _required(self, key: str) -> str | None:
        text = self.text(key)
        metadata = self.front.fields.get("metadata")
        if text is None and isinstance(metadata, dict) and isinstance(nested := metadata.get(key), str):
            text = nested.strip() or None
            self.tell("note", self.front.lines["metadata"], f"{key} is taken from metadata; write it at the margin")
        if text is None:
            self.complain(key, "error", f"there is no {key}: add a line such as `{EXAMPLES[key]}`")
        return text

    def _tools(self, key: str) -> tuple[str, ...] | None:
        value = self.value(key)
        if value is None:
            if key in self.spelling:
                self.complain(key, "warning", f"{key} is empty and is ignored; `[]` is an empty list")
            return None
        if isinstance(value, dict):
            # A limit that cannot be read must not become no limit.
            self.complain(key, "warning", f"{key} must be a list, not a mapping; until then no tool may be used")
            return () if key == "tools" else ("*",)
        names = tool_names(value)
        if names is None:
            return None if key == "tools" else ("*",)
        for entry in names:
            self._check_tool(key, entry)
        return tuple(dict.fromkeys(name for entry in names for name in OTHER_NAMES.get(entry, (entry,))))

    def _servers(self) -> ServerList | None:
        value = self.value("mcpServers")
        if value is None:
            return None
        return read_server_list(value, lambda reason, _key: self.complain("mcpServers", "warning", reason))

    def _check_tool(self, key: str, entry: str) -> None:
        name, known = bare_name(entry), NAMES
        if "(" in entry and not entry.endswith(")"):
            self.complain(key, "warning", f"{shown(entry)} in {key} has no closing bracket")
        if entry in OTHER_NAMES:
            self.complain(key, "note", f"{shown(entry)} in {key} is read as {' and '.join(OTHER_NAMES[entry])}")
        elif name not in known and not name.startswith("mcp__"):
            self.complain(key, "note", f"unknown tool {shown(name)} in {key}{hint_at(name, known)}")

    def _skills(self) -> tuple[str, ...]:
        """The names of skills; whether there are such is known where the agent works."""
        value = self.value("skills")
        names = None if value is None else tool_names(value)
        if isinstance(value, dict) or (value is not None and names is None):
            self.complain("skills", "warning", "skills must be a list of names, and is ignored")
            return ()
        return tuple(names or ())

    def _model(self) -> str | None:
        name = self.text("model")
        if name is None or name == "inherit":
            return None
        table = known_models()
        if table.find(name) is not None:
            return name
        near = nearest(name, [*table.models, *table.aliases])
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(table.aliases)}"
        self.complain("model", "warning", f"{shown(name)} is not a known model and is ignored; {hint}")
        return None

    def _effort(self) -> Effort | None:
        effort, model = self.choice("effort", get_args(Effort)), self.text("model")
        found = None if model is None else known_models().find(model)
        if effort is not None and found is not None and "effort" in found.refuses:
            self.complain("effort", "warning", f"effort has no effect: {found.id} takes none")
        return effort

    def _color(self) -> str | None:
        word = self.text("color")
        code = None if word is None else color_code(word)
        if word is not None and code is None:
            hint = hint_at(word, COLORS) or f"; it can be {', '.join(COLORS)}, or a code such as #3b82f6"
            self.complain("color", "warning", f"color is {shown(word)} and is ignored{hint}")
        return code
