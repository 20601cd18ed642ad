"""The commands `list` and `check`, which agent definitions and skills share."""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, get_args

import attrs
import click

from coterie.agents.definitions.definition_files import FileProblem, Severity
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, count_text
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.cli.text_table import table_lines

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class LoadedFiles(Protocol[Item_co]):
    """Definitions (agent types or skills) that were loaded from files, and the problems found in these files."""

    @property
    def by_name(self) -> Mapping[str, Item_co]:
        """Valid definitions (agent types or skills) by name."""

    @property
    def problems(self) -> Sequence[FileProblem]:
        """Problems of all files."""

    @property
    def files(self) -> int:
        """Number of definition files that were found, also invalid ones."""


@attrs.frozen(kw_only=True)
class DefinitionCommands(Generic[Item]):
    """Builder of the commands `list` and `check` for one sort of definition files: agent types or skills."""

    noun: str
    """Name of one definition in help texts and counts: `agent` or `skill`."""
    article: str
    """Indefinite article of `noun`: `a` or `an`."""
    listing: str
    """Help text of the command `list`."""
    key: str
    """JSON key of the definitions in the output of `check`."""
    expected: str
    """Description of the paths that `check` accepts, for its help text and its error line."""
    load: Callable[[Path], LoadedFiles[Item]]
    load_path: Callable[[Path], LoadedFiles[Item]]
    row: Callable[[Item], dict[str, Any]]
    """Function that converts a definition to its JSON object for `--json`."""
    heading: Callable[[Item], str]
    """Function that returns the heading line of a definition's group in `list`: its scope and directory."""
    cells: Callable[[Item], Sequence[str]]
    """Function that returns the cells of a definition's row in `list`; the last cell is the description."""
    widest: int | None = None
    """Maximum width of each column of `list` except the last; None for no limit."""

    def add_to(self, group: click.Group) -> None:
        """Add the commands `list` and `check` to *group*."""
        text = (
            f"Check that the {self.noun} files in PATH are valid.\n\n"
            f"PATH is {self.expected} [default: all {self.noun} files that apply in the current directory]. Prints one "
            f"line for each problem, and the number of errors and warnings. Exits 1 if there is an error: a file that "
            f"cannot be used as {self.article} {self.noun}. Exits 2 if PATH cannot be read."
        )

        @group.command("list", help=self.listing)
        @json_option()
        def list_definitions(*, is_json: bool) -> None:
            self._list(f"coterie {group.name} check", is_json=is_json)

        @group.command("check", help=text)
        @click.argument("path", required=False, type=click.Path(path_type=Path))
        @json_option()
        def check(*, path: Path | None, is_json: bool) -> None:
            self._check(path, is_json=is_json)

    def _list(self, check_command: str, *, is_json: bool) -> None:
        found = self.load(Path.cwd())
        items = list(found.by_name.values())
        if is_json:
            click.echo(json.dumps([self.row(item) for item in items]))
            return
        lines = table_lines(
            [self.cells(item) for item in items], shutil.get_terminal_size().columns, widest=self.widest
        )
        for heading, group in groupby(zip(items, lines, strict=True), key=lambda each: self.heading(each[0])):
            click.echo("\n".join([heading, *(line for _, line in group)]))
        if errors := sum(problem.severity == "error" for problem in found.problems):
            click.echo(f"the files have {count_text(errors, 'error')}; `{check_command}` shows the details", err=True)

    def _check(self, path: Path | None, *, is_json: bool) -> None:
        found = self.load(Path.cwd()) if path is None else self._load(path)
        if is_json:
            rows = [self.row(item) for item in found.by_name.values()]
            problems = [{**attrs.asdict(problem), "path": str(problem.path)} for problem in found.problems]
            click.echo(json.dumps({"files": found.files, self.key: rows, "problems": problems}))
        else:
            for problem in found.problems:
                click.echo(plain_text(str(attrs.evolve(problem, path=shown_path(problem.path)))))
            counts = Counter(problem.severity for problem in found.problems)
            severities = ", ".join(count_text(counts[severity], severity) for severity in get_args(Severity))
            items = count_text(len(found.by_name), self.noun)
            click.echo(f"{count_text(found.files, 'file')}, {items}: {severities}")
        is_valid = all(problem.severity != "error" for problem in found.problems)
        sys.exit(ExitCode.DONE if is_valid else ExitCode.FAILED)

    def _load(self, path: Path) -> LoadedFiles[Item]:
        try:
            path.stat()
        except OSError as exc:
            raise UsageRefused(f"{path} cannot be read: {exc.strerror}; give {self.expected}") from exc
        return self.load_path(path)


def plain_text(text: str) -> str:
    """Return *text* with each unprintable character replaced, so that a project's file cannot control the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def shown_path(path: Path) -> Path:
    """Return *path* relative to the current directory if it is in that directory, else unchanged."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
