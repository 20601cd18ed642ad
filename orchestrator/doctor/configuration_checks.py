"""Checks of agent definitions, skills, settings, MCP servers, and the stored approvals of files, hooks and servers."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.definitions.store import load_definitions
from coterie.agents.runtime.setup.sandbox_setup import check_sandbox
from coterie.agents.skills.store import load_skills
from coterie.agents.tools.web.hosts import hosts_from_settings
from coterie.errors import ConfigInvalid
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, FindingKind
from coterie.orchestrator.mcp.mcp_servers import McpServers, load_servers
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.paths import project_root
from coterie.trusted_files import TrustedContents, TrustedFiles, TrustedKind


def configuration_findings(project: Path) -> Iterator[DoctorFinding]:
    """Find errors in the configuration that a run in *project* would use. Blocks on the disk; raises `OSError`."""
    servers = McpServers()
    with suppress(ConfigInvalid):  # an unreadable record of approvals, which `_check_approvals` reports
        servers = load_servers(project)
    found: tuple[tuple[FindingKind, str, Iterable[FileProblem]], ...] = (
        ("bad_definition", "agents check", _errors(load_definitions(project).problems)),
        ("bad_skill", "skills check", _errors(load_skills(project).problems)),
        ("bad_settings", "mcp list", servers.problems),
    )
    for kind, command, problems in found:
        for problem in problems:
            where, advice = f"{problem.path}:{problem.line}", f"fix it; `coterie {command}` shows details"
            yield DoctorFinding(kind=kind, where=where, what=problem.reason, advice=advice)
    for check in (_check_settings, _check_approvals):
        try:
            check(project)
        except ConfigInvalid as exc:
            yield DoctorFinding(kind="bad_settings", where=exc.source, what=exc.reason, advice="fix it")


def _errors(problems: Iterable[FileProblem]) -> Iterator[FileProblem]:
    return (problem for problem in problems if problem.severity == "error")


def _check_settings(project: Path) -> None:
    settings = load_settings(project, {}, os.environ)
    check_sandbox(settings, project)
    hosts_from_settings(settings)


def _check_approvals(project: Path) -> None:
    """Read every record of what the user has approved for *project*. Raises `ConfigInvalid` if a record is invalid."""
    root = project_root(project)
    _ = project in TrustedFiles.of(root)
    for category in get_args(TrustedKind):
        _ = b"" in TrustedContents.of(root, category)
