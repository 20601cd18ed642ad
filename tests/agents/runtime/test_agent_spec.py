"""Encoding and completion of an agent's spec."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.mcp.client import McpAccess
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.job_messages import ExtractJob
from coterie.agents.root_link.spawn_request import Spawned
from coterie.agents.runtime.agent_main import complete_spec
from coterie.agents.runtime.agent_spec import AgentSpec, AgentWorkspace, Incarnation, Services
from coterie.agents.runtime.worktree import Worktree
from coterie.agents.settings import SETTINGS, Settings
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.validation import MessageDigest
from coterie.session_directory import SessionDirectory

GIVEN = {
    "model": "haiku",
    "max_budget_usd": Decimal("0.1"),
    "max_seconds": 2.5,
    "thinking": True,
    "memory_directory": Path("/var/lib/notes"),
    "permissions.mode": "acceptEdits",
    "permissions.allow": ("Bash(git status:*)", "Read"),
    "layers.clearing.keep": 7,
}

WORKTREE = Worktree(
    path=Path("/project/.coterie/worktrees/w"),
    directory=Path("/project/.coterie/worktrees/w/below"),
    origin=Path("/project/below"),
    repository=Path("/project/.git"),
    branch="coterie/s/scout",
    base="0" * 40,
    record=Path("/home/worktree.json"),
)


def test_spec_survives_encoding() -> None:
    settings = Settings.build(
        GIVEN, {"permissions.allow": ("a.toml", "b.toml"), "model": ("flag",)}, frozenset({"model"})
    )
    spec = AgentSpec(
        name="scout",
        parent="main",
        report=MessageId("r"),
        task='say "hello"\n',
        model="m",
        settings=settings,
        parent_settings=(settings, Settings()),
        is_teammate=True,
        plan=PlanPolicy(by="rule", paths=("tests/**",)),
        memory="local",
        workspace=AgentWorkspace(directory=WORKTREE.directory, worktree=WORKTREE),
        services=Services(
            session_id="20260101-000000-abcdef",
            api_url="http://127.0.0.1:1",
            mail_key="5ec7e7",
            mcp=McpAccess(address="/run/mcp", token="7"),  # noqa: S106 - no secret
        ),
        incarnation=Incarnation(
            number=3,
            running_children=(Spawned(name="child", incarnation=1, report=MessageId("c")),),
            trusted_digests=(MessageDigest("d1"), MessageDigest("d2")),
        ),
    )
    read = AgentSpec.from_bytes(spec.to_bytes())
    assert read == spec
    assert "5ec7e7" not in repr(spec)
    assert {key: read.settings.item_sources(key) for key in SETTINGS} == {
        key: settings.item_sources(key) for key in SETTINGS
    }
    assert [key for key in SETTINGS if read.settings.is_final(key)] == ["model"]


@pytest.mark.parametrize(
    ("given", "words", "task"),
    [
        ({}, [], "Look.\n\nGo on."),
        ({}, ["Look."], "Go on."),
        ({"job": ExtractJob()}, [], "Go on."),
        ({"parent": "main"}, [], "Go on."),
        ({"task": "Look."}, [], "Look."),
        ({"task": ""}, [], "Look."),
        ({"incarnation": Incarnation(is_resumed=True)}, ["Look.", "Go on."], ""),
        ({"incarnation": Incarnation(is_resumed=True)}, ["Look."], "Go on."),
    ],
)
def test_agent_completes_its_spec_with_directory_and_remaining_task(
    given: dict[str, Any], words: list[str], task: str
) -> None:
    session = SessionDirectory(id="s", project=Path("/project"), task="Look.", model="m", started=0.0)
    spec = AgentSpec(**{"name": "main", "task": "Go on.", "model": "m", "settings": Settings(), **given})
    completed = complete_spec(spec, session, words)
    assert (completed.task, completed.directory) == (task, Path("/project"))
