"""Problems of agent definitions and skills, as lines and as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.definitions.definition_files import FileProblem, Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


def problem_lines(problems: Iterable[FileProblem]) -> Iterable[str]:
    """A line for each problem."""
    return (plain_text(str(attrs.evolve(problem, path=shown_path(problem.path)))) for problem in problems)


def problem_row(problem: FileProblem) -> dict[str, Any]:
    """A problem as JSON has it."""
    return {**attrs.asdict(problem), "path": str(problem.path)}


def problem_counts(problems: Sequence[FileProblem]) -> str:
    """How many there are of each severity."""
    counts = Counter(problem.severity for problem in problems)
    return ", ".join(count_text(counts[severity], severity) for severity in SEVERITIES)


def has_errors(problems: Iterable[FileProblem]) -> bool:
    """Whether some file gives nothing at all."""
    return any(problem.severity == "error" for problem in problems)


def count_text(number: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plain_text(text: str) -> str:
    """*text* without what could steer a terminal: files of a project are written by strangers."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def shown_path(path: Path) -> Path:
    """*path* as one would write it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
