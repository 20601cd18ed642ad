"""Checks of definitions, skills, settings, MCP servers and approved files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.definitions.store import load_definitions
from coterie.agents.runtime.setup.sandbox_setup import check_sandbox
from coterie.agents.skills.store import load_skills
from coterie.agents.tools.web.hosts import hosts_from_settings
from coterie.errors import ConfigInvalid
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding
from coterie.orchestrator.mcp.mcp_servers import load_servers
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.paths import project_root
from coterie.trusted_files import TrustedContents, TrustedFiles, TrustedKind


def configuration_findings(project: Path) -> Iterator[DoctorFinding]:
    """What is wrong for a run in *project*. Blocks on the disk; raises `OSError`."""
    for problem in load_definitions(project).problems:
        if problem.severity == "error":
            where, advice = f"{problem.path}:{problem.line}", "mend it; `coterie agents check` tells more"
            yield DoctorFinding(kind="bad_definition", where=where, what=problem.reason, advice=advice)
    for problem in load_skills(project).problems:
        if problem.severity == "error":
            where, advice = f"{problem.path}:{problem.line}", "mend it; `coterie skills check` tells more"
            yield DoctorFinding(kind="bad_skill", where=where, what=problem.reason, advice=advice)
    for problem in _server_problems(project):
        where, advice = f"{problem.path}:{problem.line}", "mend it; `coterie mcp list` tells more"
        yield DoctorFinding(kind="bad_settings", where=where, what=problem.reason, advice=advice)
    for read in (_read_settings, _read_approvals):
        try:
            read(project)
        except ConfigInvalid as exc:
            yield DoctorFinding(kind="bad_settings", where=exc.source, what=exc.reason, advice="mend it")


def _server_problems(project: Path) -> list[FileProblem]:
    """What is wrong with how MCP servers are configured."""
    try:
        return list(load_servers(project).problems)
    except ConfigInvalid:  # a record of approvals, which is read below
        return []


def _read_settings(project: Path) -> None:
    settings = load_settings(project, {}, os.environ)
    check_sandbox(settings, project)
    hosts_from_settings(settings)


def _read_approvals(project: Path) -> None:
    """Any question reads the record."""
    root = project_root(project)
    _ = project in TrustedFiles.of(root)
    for matter in get_args(TrustedKind):
        _ = b"" in TrustedContents.of(root, matter)
