"""Asks once whether instruction files may include a file from outside their place."""

from pathlib import Path

import click

from coterie.agents.project import project_root
from coterie.orchestrator.approved_files import ApprovedFiles
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.first_context import instructions_of


def approve_includes(project: Path) -> None:
    """Ask about each file that nobody has approved yet; a yes is kept for all later runs in the project.

    Raises `ConfigInvalid` and `OSError` as the record of approvals does.
    """
    approved = ApprovedFiles.of(project_root(project))
    refused: set[Path] = set()
    # An approved file may name further ones.
    while waiting := [path for path in instructions_of(project).unapproved if path not in refused]:
        for path in waiting:
            if click.confirm(
                f"An instruction file of this project includes {printable(str(path))}. Allow it?", err=True
            ):
                approved.approve(path)
            else:
                refused.add(path)
