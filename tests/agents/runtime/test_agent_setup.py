"""Setup of an agent: its spec, its limits on tools and MCP servers, and its progress summaries."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import load_definitions
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.agents.mcp.client import McpAccess
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.permissions.rules import RoleLimit
from coterie.agents.root_link.job_messages import ExtractJob
from coterie.agents.root_link.spawn_request import Spawned
from coterie.agents.runtime.agent_main import complete_spec
from coterie.agents.runtime.agent_spec import AgentSpec, AgentWorkspace, Incarnation, Services
from coterie.agents.runtime.setup.agent_permissions import (
    TEAM_TOOLS,
    effective_permissions,
    server_limits,
    tools_allowed_by,
)
from coterie.agents.runtime.setup.layer_setup import build_progress
from coterie.agents.runtime.worktree import Worktree
from coterie.agents.settings import SETTINGS, Settings
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.validation import MessageDigest
from coterie.session_directory import MAIN, SessionDirectory
from tests.agents.scripted_agent import of_type, open_agent, watch
from tests.embedded_server import ECHO

pytestmark = pytest.mark.usefixtures("home")


def limit_of(kind: str, project: Path, *, is_teammate: bool) -> RoleLimit:
    [limit] = effective_permissions(Settings(), load_definitions(project).get(kind), is_teammate=is_teammate).limits
    return limit


@pytest.mark.parametrize("kind", ["explore", "plan", "verifier"])
def test_teammate_may_send_mail_and_use_tasks_with_every_agent_type(kind: str, tmp_path: Path) -> None:
    alone = limit_of(kind, tmp_path, is_teammate=False).allowed
    in_team = limit_of(kind, tmp_path, is_teammate=True).allowed
    assert alone is not None
    assert alone.isdisjoint(TEAM_TOOLS)
    assert in_team == alone | set(TEAM_TOOLS)


@pytest.mark.parametrize(
    ("disallowed", "denied"),
    [("SendMessage", {"SendMessage"}), ("Write, Edit", {"Write", "Edit", "NotebookEdit"})],
)
def test_tool_denied_by_the_definition_stays_denied(disallowed: str, denied: set[str], tmp_path: Path) -> None:
    """A definition that denies Edit also denies NotebookEdit."""
    definitions = tmp_path / ".coterie" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "a.md").write_text(f"---\nname: a\ndescription: d\ndisallowedTools: {disallowed}\n---\nGo.\n")
    assert limit_of("a", tmp_path, is_teammate=True).denied == denied


def test_coordinator_may_only_delegate(tmp_path: Path) -> None:
    allowed = limit_of("coordinator", tmp_path, is_teammate=False).allowed
    assert allowed == frozenset({"Agent", "TaskStop", "SearchTranscript", "ExitPlanMode", *TEAM_TOOLS})


def listed(server: str, kinds: list[str] | None = None) -> ListedTool:
    schema = msgspec.Raw(b'{"type":"object"}')
    return ListedTool(name=f"mcp__{server}__x", server=server, tool="x", description="", schema=schema, kinds=kinds)


TOOLS = (listed("a"), listed("b"), listed("own", ["prober"]))


def kind(**facts: object) -> AgentDefinition:
    return AgentDefinition(**{"name": "k", "description": "d", "prompt": "p", "scope": "user", **facts})  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("definition", "denied"),
    [
        (None, {"own"}),
        (kind(), {"own"}),
        (kind(name="prober"), set()),
        (kind(name="prober", mcp_servers=("own",)), {"a", "b"}),
        (kind(mcp_servers=("a",)), {"b", "own"}),
        (kind(mcp_servers=()), {"a", "b", "own"}),
    ],
)
def test_servers_outside_of_the_definition_are_denied(definition: AgentDefinition | None, denied: set[str]) -> None:
    limits = server_limits(definition, TOOLS)
    assert {name for limit in limits for name in limit.denied} == {f"mcp__{server}__x" for server in denied}


def test_listed_server_allows_all_its_tools_unless_some_are_listed() -> None:
    assert tools_allowed_by(kind(tools=("Read",), mcp_servers=("a", "b"))) == ("mcp__a", "mcp__b")
    assert tools_allowed_by(kind(tools=("Read", "mcp__a__x"), mcp_servers=("a", "b"))) == ("mcp__b",)
    assert tools_allowed_by(kind(tools=("Read",))) == ()


def spec(*, is_embedded: bool = False, **progress: Any) -> AgentSpec:
    settings = Settings.build({f"progress.{key}": value for key, value in progress.items()}, {})
    services = Services(api_url="http://127.0.0.1:1" if is_embedded else None)
    return AgentSpec(name="scout", task="t", model="sonnet", settings=settings, services=services)


@pytest.mark.parametrize(
    ("name", "is_embedded", "given", "expected", "failures"),
    [
        ("scout", False, {}, True, []),
        (MAIN, False, {"enabled": True}, False, []),
        ("scout", False, {"enabled": False}, False, []),
        ("scout", True, {}, False, []),
        ("scout", True, {"enabled": True}, True, []),
        ("scout", False, {"model": "hayku"}, False, ["model: 'hayku' is not a known model; did you mean haiku"]),
    ],
)
async def test_progress_is_on_for_all_agents_but_the_lead_by_default(
    tmp_path: Path, *, name: str, is_embedded: bool, given: dict[str, Any], expected: bool, failures: list[str]
) -> None:
    async with open_agent(ECHO, tmp_path) as (agent, _):
        agent.identity, events = Identity(agent=name), watch(agent)
        progress = build_progress(agent, spec(is_embedded=is_embedded, **given), LocalGateway())
    assert (progress is not None) == expected
    assert [event.reason.partition("?")[0] for event in of_type(events, LayerFailed)] == failures


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
