"""Checks of agent definitions, skills, settings, MCP servers and approved files."""

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
    """Find configuration errors for a run in *project*. Blocks on the disk; raises `OSError`."""
    for problem in load_definitions(project).problems:
        if problem.severity == "error":
            where, advice = f"{problem.path}:{problem.line}", "fix it; `coterie agents check` shows details"
            yield DoctorFinding(kind="bad_definition", where=where, what=problem.reason, advice=advice)
    for problem in load_skills(project).problems:
        if problem.severity == "error":
            where, advice = f"{problem.path}:{problem.line}", "fix it; `coterie skills check` shows details"
            yield DoctorFinding(kind="bad_skill", where=where, what=problem.reason, advice=advice)
    for problem in _server_problems(project):
        where, advice = f"{problem.path}:{problem.line}", "fix it; `coterie mcp list` shows details"
        yield DoctorFinding(kind="bad_settings", where=where, what=problem.reason, advice=advice)
    for check in (_check_settings, _check_approvals):
        try:
            check(project)
        except ConfigInvalid as exc:
            yield DoctorFinding(kind="bad_settings", where=exc.source, what=exc.reason, advice="fix it")


def _server_problems(project: Path) -> list[FileProblem]:
    """Find errors in the configuration of MCP servers."""
    try:
        return list(load_servers(project).problems)
    except ConfigInvalid:  # an unreadable record of approvals, which `_check_approvals` reports
        return []


def _check_settings(project: Path) -> None:
    settings = load_settings(project, {}, os.environ)
    check_sandbox(settings, project)
    hosts_from_settings(settings)


def _check_approvals(project: Path) -> None:
    """Read each record of approvals once, because every lookup reads the file."""
    root = project_root(project)
    _ = project in TrustedFiles.of(root)
    for category in get_args(TrustedKind):
        _ = b"" in TrustedContents.of(root, category)
