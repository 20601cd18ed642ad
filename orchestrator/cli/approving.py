"""Asks once whether instruction files may include a file from outside their place, and whether servers may start."""

from pathlib import Path

import click

from coterie.agents.project import project_root
from coterie.orchestrator.approved_files import ApprovedFiles
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.first_context import instructions_of
from coterie.orchestrator.mcp.servers import approve, load_servers


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


def approve_servers(project: Path) -> None:
    """Ask about each MCP server of the project that waits; a yes is kept until it is changed. Raises as the above."""
    for server in load_servers(project).waiting:
        where = printable(server.config.where)
        if click.confirm(f"The MCP server {server.name} of this project is {where}. May it start?", err=True):
            approve(project, [server])
