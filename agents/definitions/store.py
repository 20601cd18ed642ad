"""Definition store: all agent definitions of a project, with precedence between equal names."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from coterie.agents.definitions.definition import AgentDefinition, Scope
from coterie.agents.definitions.definition_files import FileProblem, find_files, read_text, replacement_problem
from coterie.agents.definitions.definition_parser import parse_definition
from coterie.errors import ConfigInvalid
from coterie.paths import home_directory, project_directory, project_root
from coterie.suggestions import did_you_mean

BUILT_IN = Path(__file__).with_name("built_in")


@attrs.frozen(kw_only=True)
class AgentDefinitions:
    """Loaded definitions by name, and the problems in their files."""

    by_name: Mapping[str, AgentDefinition]
    problems: tuple[FileProblem, ...]
    files: int
    """Number of files that were read."""

    def get(self, name: str) -> AgentDefinition:
        """Return the definition *name*. Raises `ConfigInvalid` with similar names."""
        if name not in self.by_name:
            raise ConfigInvalid("agent", f"unknown agent type {name!r}; {did_you_mean(name, self.by_name)}")
        return self.by_name[name]


def load_definitions(directory: Path) -> AgentDefinitions:
    """Load all definitions for work in *directory*.

    Order: built-in, of the user, of the project in `.claude/agents`, of the project in its own directory; a later
    definition replaces an earlier one of the same name. Problems in files do not raise; they are in the result.
    """
    return _load((scope, find_files(place)) for place, scope in definition_directories(directory).items())


def definition_directories(directory: Path) -> dict[Path, Scope]:
    """Return the directories with definitions for work in *directory*; later ones take precedence."""
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
    """Load the file *path*, or all definitions below the directory *path*, with the scope of a project."""
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
            definition, file_problems = _read(path, scope)
            problems += file_problems
            if definition is None:
                continue
            if (old := by_name.get(definition.name)) is not None:
                name = f"the built-in {old.name!r}" if old.scope == "built-in" else f"{old.name!r} of {old.source}"
                problems.append(replacement_problem(path, name, is_same_scope=old.scope == scope))
            by_name[definition.name] = definition
    return AgentDefinitions(by_name=by_name, problems=tuple(problems), files=files)


def _read(path: Path, scope: Scope) -> tuple[AgentDefinition | None, list[FileProblem]]:
    text = read_text(path)
    return (None, [text]) if isinstance(text, FileProblem) else parse_definition(text, path=path, scope=scope)
