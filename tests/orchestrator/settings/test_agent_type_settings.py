"""Tests of agent definitions that override settings."""

from pathlib import Path

import pytest

from coterie.agents.settings import Settings
from coterie.errors import ConfigInvalid
from coterie.orchestrator.settings.settings_loader import apply_definition, load_settings

CAREFUL = """---
name: careful
description: Looks twice.
model: haiku
permissionMode: {mode}
maxTurns: 7
---
Look twice.
"""


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    (tmp_path / "project/.coterie/agents").mkdir(parents=True)
    home.mkdir()
    (home / "settings.toml").write_text("model = 'opus'\nmax_turns = 50\n")
    return tmp_path / "project"


def define(project: Path, mode: str) -> None:
    (project / ".coterie/agents/careful.md").write_text(CAREFUL.format(mode=mode))


def settings(project: Path, **flags: object) -> Settings:
    given = {key.replace("__", "."): value for key, value in flags.items()}
    return load_settings(project, {"agent": "careful", **given}, {})


def test_definition_overrides_settings_file_but_not_the_command_line(project: Path) -> None:
    define(project, "plan")
    laid, kind = apply_definition(settings(project), project)
    assert (laid.model, laid.max_turns, laid.permissions.mode) == ("haiku", 7, "plan")
    assert kind is not None
    assert kind.prompt == "Look twice."
    flags = {"model": "sonnet", "max_turns": 3, "permissions__mode": "acceptEdits"}
    laid, _ = apply_definition(settings(project, **flags), project)
    assert (laid.model, laid.max_turns, laid.permissions.mode) == ("sonnet", 3, "acceptEdits")
    plain = load_settings(project, {}, {})
    assert apply_definition(plain, project) == (plain, None)


def test_project_definition_cannot_bypass_permissions_but_user_can(project: Path) -> None:
    define(project, "bypassPermissions")
    with pytest.raises(ConfigInvalid, match="may not set bypassPermissions"):
        apply_definition(settings(project), project)
    laid, _ = apply_definition(settings(project, permissions__mode="bypassPermissions"), project)
    assert laid.permissions.mode == "bypassPermissions"


def test_managed_settings_override_definition(project: Path) -> None:
    define(project, "acceptEdits")
    managed = project.parent / "managed.toml"
    managed.write_text("[permissions]\nmode = 'plan'\n")
    laid, _ = apply_definition(load_settings(project, {"agent": "careful"}, {}, managed), project)
    assert laid.permissions.mode == "plan"
