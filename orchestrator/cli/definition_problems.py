"""Problems of agent definitions and skills, as lines and as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.definitions.definition_files import FileProblem, Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


def problem_lines(problems: Iterable[FileProblem]) -> Iterable[str]:
    """Render one line for each problem."""
    return (plain_text(str(attrs.evolve(problem, path=shown_path(problem.path)))) for problem in problems)


def problem_row(problem: FileProblem) -> dict[str, Any]:
    """Convert a problem to its JSON object."""
    return {**attrs.asdict(problem), "path": str(problem.path)}


def problem_counts(problems: Sequence[FileProblem]) -> str:
    """Count the problems of each severity, as in `1 error, 0 warnings, 2 notes`."""
    counts = Counter(problem.severity for problem in problems)
    return ", ".join(count_text(counts[severity], severity) for severity in SEVERITIES)


def has_errors(problems: Iterable[FileProblem]) -> bool:
    """True if a problem is an error: the file defines nothing that can be used."""
    return any(problem.severity == "error" for problem in problems)


def count_text(number: int, noun: str) -> str:
    """Count with its noun, as in `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plain_text(text: str) -> str:
    """*text* with unprintable characters replaced, because files of a project could otherwise control the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def shown_path(path: Path) -> Path:
    """*path* relative to the current directory if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
