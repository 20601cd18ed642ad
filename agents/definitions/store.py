"""Definition store: all agent definitions of a project, and which of two with one name counts."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from coterie.agents.definitions.definition import AgentDefinition, Scope
from coterie.agents.definitions.definition_files import FileProblem, Severity, find_files, read_text
from coterie.agents.definitions.definition_parser import parse_definition
from coterie.errors import ConfigInvalid
from coterie.paths import home_directory, project_directory, project_root
from coterie.suggestions import did_you_mean

BUILT_IN = Path(__file__).with_name("built_in")


@attrs.frozen(kw_only=True)
class AgentDefinitions:
    """What was found, by name."""

    by_name: Mapping[str, AgentDefinition]
    problems: tuple[FileProblem, ...]
    files: int
    """How many files were looked at."""

    def get(self, name: str) -> AgentDefinition:
        """The definition called *name*; raises `ConfigInvalid` with the nearest names."""
        if name not in self.by_name:
            raise ConfigInvalid("agent", f"there is no agent {name!r}; {did_you_mean(name, self.by_name)}")
        return self.by_name[name]


def load_definitions(directory: Path) -> AgentDefinitions:
    """Read all definitions that hold for work in *directory*.

    Built-in, the user's, those in the project's `.claude/agents`, the project's own: of one name the later counts.
    Nothing about a file raises; it is among the problems.
    """
    return _load((scope, find_files(place)) for place, scope in definition_directories(directory).items())


def definition_directories(directory: Path) -> dict[Path, Scope]:
    """The directories whose definitions hold for work in *directory*; of one name the later counts."""
    places: dict[Path, Scope] = {
        BUILT_IN: "built-in",
        home_directory() / "agents": "user",
        project_root(directory) / ".claude" / "agents": "claude",
    }
    own = project_directory(directory) / "agents"
    # The project's directory may be .claude itself; then its definitions are the project's own, and weigh as such.
    places.pop(own, None)
    return {**places, own: "project"}


def load_path(path: Path) -> AgentDefinitions:
    """Read the file *path*, or all definitions below the directory *path*, as those of a project."""
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
            definition, told = _read(path, scope)
            problems += told
            if definition is not None:
                problems += _shadowing(path, definition, by_name.get(definition.name))
                by_name[definition.name] = definition
    return AgentDefinitions(by_name=by_name, problems=tuple(problems), files=files)


def _read(path: Path, scope: Scope) -> tuple[AgentDefinition | None, list[FileProblem]]:
    text = read_text(path)
    return (None, [text]) if isinstance(text, FileProblem) else parse_definition(text, path=path, scope=scope)


def _shadowing(path: Path, winner: AgentDefinition, loser: AgentDefinition | None) -> list[FileProblem]:
    """That *loser* no longer counts; in one place that is an accident, across places it is how to override."""
    if loser is None:
        return []
    other = f"the built-in {loser.name!r}" if loser.scope == "built-in" else f"{loser.name!r} of {loser.source}"
    severity: Severity = "warning" if winner.scope == loser.scope else "note"
    return [FileProblem(path=path, line=1, severity=severity, reason=f"takes the place of {other}")]
