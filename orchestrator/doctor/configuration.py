"""What the user wrote, or was written for the user, and cannot be used: definitions, skills, settings, approvals."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from coterie.agents.definitions import load_definitions
from coterie.agents.definitions.problem import Problem
from coterie.agents.errors import ConfigInvalid
from coterie.agents.project import project_root
from coterie.agents.skills import load_skills
from coterie.orchestrator.approved_files import ApprovedContents, ApprovedFiles, Matter
from coterie.orchestrator.doctor.finding import Finding
from coterie.orchestrator.mcp.servers import load_servers
from coterie.orchestrator.sandboxing import check_sandbox
from coterie.orchestrator.settings import load_settings
from coterie.orchestrator.web import hosts_of


def configuration_findings(project: Path) -> Iterator[Finding]:
    """What is wrong for a run in *project*. Blocks on the disk; raises `OSError`."""
    for problem in load_definitions(project).problems:
        if problem.severity == "error":
            where, advice = f"{problem.path}:{problem.line}", "mend it; `coterie agents check` tells more"
            yield Finding(kind="bad_definition", where=where, what=problem.reason, advice=advice)
    for problem in load_skills(project).problems:
        if problem.severity == "error":
            where, advice = f"{problem.path}:{problem.line}", "mend it; `coterie skills check` tells more"
            yield Finding(kind="bad_skill", where=where, what=problem.reason, advice=advice)
    for problem in _server_problems(project):
        where, advice = f"{problem.path}:{problem.line}", "mend it; `coterie mcp list` tells more"
        yield Finding(kind="bad_settings", where=where, what=problem.reason, advice=advice)
    for read in (_read_settings, _read_approvals):
        try:
            read(project)
        except ConfigInvalid as exc:
            yield Finding(kind="bad_settings", where=exc.source, what=exc.reason, advice="mend it")


def _server_problems(project: Path) -> list[Problem]:
    """What is wrong with how MCP servers are configured."""
    try:
        return list(load_servers(project).problems)
    except ConfigInvalid:  # a record of approvals, which is read below
        return []


def _read_settings(project: Path) -> None:
    settings = load_settings(project, {}, os.environ)
    check_sandbox(settings, project)
    hosts_of(settings)


def _read_approvals(project: Path) -> None:
    """Any question reads the record."""
    root = project_root(project)
    _ = project in ApprovedFiles.of(root)
    for matter in get_args(Matter):
        _ = b"" in ApprovedContents.of(root, matter)
