"""Definition store: the parser of agent definition files, and all definitions of a project by agent type."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

import attrs

from coterie.agents.definitions.definition import AgentDefinition, Scope
from coterie.agents.definitions.definition_files import FileProblem, find_files, read_text, replacement_problem
from coterie.agents.definitions.front_matter_fields import COLORS, FrontMatterFields, color_code, spelling_hint, squash
from coterie.agents.definitions.list_fields import (
    OTHER_NAMES,
    bare_name,
    parse_hook_field,
    parse_server_list,
    tool_names,
)
from coterie.agents.loop.model.catalog import Effort, known_models
from coterie.agents.mcp.server_config import ServerConfig
from coterie.agents.permissions.name_patterns import TOOL_NAMES
from coterie.agents.permissions.types import MODES
from coterie.agents.root_link.spawn_request import Isolation, MemoryScope, Process
from coterie.errors import ConfigInvalid
from coterie.memory.front_matter.yaml_fields import quote_text
from coterie.paths import home_directory, project_directory, project_root
from coterie.suggestions import closest_match, did_you_mean

EXAMPLES = {"name": "name: reviewer", "description": "description: Reviews a change. Use after every edit."}
"""Keys that a definition must have, each with an example for the error about a missing key."""

UNUSED = "it has no effect here"
BUILT_IN = Path(__file__).with_name("built_in")


def parse_definition(text: str, *, path: Path, scope: Scope) -> tuple[AgentDefinition | None, list[FileProblem]]:
    """Parse *text*, the content of the definition file *path*; return the definition and the problems in the file.

    The definition is None if there is no valid name or no description; a problem contains the reason. Raises
    `ConfigInvalid` only if the file that lists the known models is invalid.
    """
    reader = _DefinitionParser(path=path, content=text)
    return reader.parse(scope), reader.sorted_problems()


class _DefinitionParser(FrontMatterFields):
    keys = (
        *("name", "description", "tools", "disallowedTools", "model", "permissionMode"),
        *("maxTurns", "memory", "background", "process", "isolation", "skills", "hooks", "mcpServers"),
        *("effort", "color", "initialPrompt"),
    )
    set_aside = {  # noqa: RUF012 - a constant, declared as such in the base class
        **dict.fromkeys(("type", "category", "tags", "version", "author", "created", "updated", "metadata"), UNUSED),
        **dict.fromkeys(("capabilities", "priority", "expertise_level", "platform", "sparc_phase", "license"), UNUSED),
        **dict.fromkeys(("triggers", "examples"), "`description` alone says when to use it"),
        **dict.fromkeys(("constraints", "behavior", "communication", "modes"), "write it in the prompt, below"),
        **dict.fromkeys(("integration", "optimization", "execution"), "write it in the prompt, below"),
        "limits": "`maxTurns` limits an agent, and settings limit its spending",
        "temperature": "newer models do not support it; use `effort`",
    }

    def parse(self, scope: Scope) -> AgentDefinition | None:
        if not self.has_front_matter():
            return None
        name, description = self._required("name"), self._required("description")
        if name is None or description is None:
            return None
        if not name.isprintable():
            reason = f"{quote_text(name)} is not a valid name: it must be one line of plain text"
            self.add_error("name", "error", reason)
            return None
        return self._definition(name, description, scope)

    def _definition(self, name: str, description: str, scope: Scope) -> AgentDefinition:
        prompt = self.front.body.strip()
        if not prompt:
            reason = "the prompt is empty: write the instructions below the front matter"
            self.add_problem("warning", self.front.line or 1, reason)
        servers, own_servers = self._servers()
        return AgentDefinition(
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
            mcp_servers=servers,
            own_servers=own_servers,
            color=self._color(),
            initial_prompt=self.text("initialPrompt"),
            hooks=parse_hook_field(self),
            scope=scope,
            source=self.path,
        )

    def report_unknown(self, key: str, line: int) -> None:
        """Report an unknown key; for `allowed-tools`, a key of other products, suggest `tools`."""
        if squash(key) == "allowedtools":
            reason = f"unknown key {quote_text(key)} is ignored; use `tools` to limit the tools of an agent"
            self.add_problem("warning", line, reason)
        else:
            super().report_unknown(key, line)

    def _required(self, key: str) -> str | None:
        text = self.text(key)
        metadata = self.front.fields.get("metadata")
        if text is None and isinstance(metadata, dict) and isinstance(nested := metadata.get(key), str):
            text = nested.strip() or None
            self.add_error("metadata", "note", f"{key} is taken from metadata; write it as a top-level key")
        if text is None:
            self.add_error(key, "error", f"{key} is missing: add a line such as `{EXAMPLES[key]}`")
        return text

    def _tools(self, key: str) -> tuple[str, ...] | None:
        value = self.value(key)
        if value is None:
            if key in self.spelling:
                self.add_error(key, "warning", f"{key} is empty and is ignored; `[]` is an empty list")
            return None
        if isinstance(value, dict):
            # An unreadable limit must not become no limit.
            self.add_error(key, "warning", f"{key} must be a list, not a mapping; until then no tool may be used")
            return () if key == "tools" else ("*",)
        names = tool_names(value)
        if names is None:
            return None if key == "tools" else ("*",)
        for entry in names:
            self._check_tool(key, entry)
        return tuple(dict.fromkeys(name for entry in names for name in OTHER_NAMES.get(entry, (entry,))))

    def _servers(self) -> tuple[tuple[str, ...] | None, tuple[ServerConfig, ...]]:
        value = self.value("mcpServers")
        if value is None:
            return None, ()
        return parse_server_list(value, lambda reason, _key: self.add_error("mcpServers", "warning", reason))

    def _check_tool(self, key: str, entry: str) -> None:
        name, known = bare_name(entry), TOOL_NAMES
        if "(" in entry and not entry.endswith(")"):
            self.add_error(key, "warning", f"{quote_text(entry)} in {key} has no closing bracket")
        if entry in OTHER_NAMES:
            others = " and ".join(OTHER_NAMES[entry])
            self.add_error(key, "note", f"{quote_text(entry)} in {key} is replaced by {others}")
        elif name not in known and not name.startswith("mcp__"):
            self.add_error(key, "note", f"unknown tool {quote_text(name)} in {key}{spelling_hint(name, known)}")

    def _skills(self) -> tuple[str, ...]:
        """Return the skill names in the file. The agent process checks later that these skills exist."""
        value = self.value("skills")
        names = None if value is None else tool_names(value)
        if isinstance(value, dict) or (value is not None and names is None):
            self.add_error("skills", "warning", "skills must be a list of names, and is ignored")
            return ()
        return tuple(names or ())

    def _model(self) -> str | None:
        name = self.text("model")
        if name is None or name == "inherit":
            return None
        table = known_models()
        if table.find(name) is not None:
            return name
        near = closest_match(name, [*table.models, *table.aliases])
        hint = f"did you mean {' or '.join(near)}?" if near else f"known models: {', '.join(table.aliases)}"
        self.add_error("model", "warning", f"unknown model {quote_text(name)} is ignored; {hint}")
        return None

    def _effort(self) -> Effort | None:
        effort, model = self.choice("effort", get_args(Effort)), self.text("model")
        found = None if model is None else known_models().find(model)
        if effort is not None and found is not None and "effort" in found.refuses:
            self.add_error("effort", "warning", f"effort has no effect: {found.id} does not support it")
        return effort

    def _color(self) -> str | None:
        word = self.text("color")
        code = None if word is None else color_code(word)
        if word is not None and code is None:
            hint = spelling_hint(word, COLORS) or f"; it can be {', '.join(COLORS)}, or a code such as #3b82f6"
            self.add_error("color", "warning", f"unknown color {quote_text(word)} is ignored{hint}")
        return code


@attrs.frozen(kw_only=True)
class AgentDefinitions:
    """Loaded agent definitions by agent type, and the problems in their files."""

    by_name: Mapping[str, AgentDefinition]
    problems: tuple[FileProblem, ...]
    files: int
    """Number of definition files that were found, including unusable ones."""

    def get(self, name: str) -> AgentDefinition:
        """Return the definition of the agent type *name*. Raises `ConfigInvalid` if there is none."""
        if name not in self.by_name:
            raise ConfigInvalid("agent", f"unknown agent type {name!r}; {did_you_mean(name, self.by_name)}")
        return self.by_name[name]


def load_definitions(directory: Path) -> AgentDefinitions:
    """Load all agent definitions that apply to work in *directory*.

    Order: built-in, of the user, of the project in `.claude/agents`, of the project in `.coterie/agents`; a later
    definition replaces an earlier one of the same name. Problems in these files do not raise; they are in the result.
    """
    return _load((scope, find_files(place)) for place, scope in definition_directories(directory).items())


def definition_directories(directory: Path) -> dict[Path, Scope]:
    """Return the directories that may contain definitions for work in *directory*; later ones take precedence."""
    places: dict[Path, Scope] = {
        BUILT_IN: "built-in",
        home_directory() / "agents": "user",
        project_root(directory) / ".claude" / "agents": "claude",
    }
    own = project_directory(directory) / "agents"
    # The project's directory may be .claude itself; its definitions then have the scope of the project.
    places.pop(own, None)
    return {**places, own: "project"}


def load_path(path: Path) -> AgentDefinitions:
    """Load the definition file *path*, or all definition files below the directory *path*, for a check by the user."""
    return _load([("project", find_files(path) if path.is_dir() else [path])])


def _load(places: Iterable[tuple[Scope, Iterable[Path | FileProblem]]]) -> AgentDefinitions:
    by_name: dict[str, AgentDefinition] = {}
    problems: list[FileProblem] = []
    files = 0
    for scope, found in places:
        for path in found:
            if isinstance(path, FileProblem):
                problems.append(path)
                continue
            files += 1
            text = read_text(path)
            if isinstance(text, FileProblem):
                problems.append(text)
                continue
            definition, file_problems = parse_definition(text, path=path, scope=scope)
            problems += file_problems
            if definition is None:
                continue
            if (old := by_name.get(definition.name)) is not None:
                name = f"the built-in {old.name!r}" if old.scope == "built-in" else f"{old.name!r} of {old.source}"
                problems.append(replacement_problem(path, name, is_same_scope=old.scope == scope))
            by_name[definition.name] = definition
    return AgentDefinitions(by_name=by_name, problems=tuple(problems), files=files)
