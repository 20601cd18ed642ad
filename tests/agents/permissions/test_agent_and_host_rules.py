"""Rules for starting agents, by agent type, and for web pages, by host."""

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt, Verdict
from coterie.agents.tools.team.agent_tool import AgentInput, AgentTool
from coterie.agents.tools.tool import Workspace
from coterie.agents.tools.web.hosts import HostList, WebAddress
from coterie.agents.tools.web.web_fetch import PageCache, WebFetch, WebFetchInput
from coterie.errors import ConfigInvalid


async def _nothing(_address: WebAddress, _hosts: tuple[HostList, ...]) -> str:
    return ""


# The tools never run: permissions only look at the call.
AGENT = AgentTool(spawner=None, mail=None, agent_types={})  # type: ignore[arg-type]
FETCH = WebFetch(hosts=(), cache=PageCache(lambda: 0.0), load=_nothing)


def _rules(*texts: str) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text, "test") for text in texts)


def _judge_start(permissions: Permissions, kind: str, workspace: Workspace) -> Verdict:
    return permissions.evaluate(AGENT, AgentInput(description="l", prompt="L.", subagent_type=kind), workspace)


def _judge_fetch(permissions: Permissions, url: str, workspace: Workspace) -> Verdict:
    return permissions.evaluate(FETCH, WebFetchInput(url=url), workspace)


@pytest.mark.parametrize(
    ("rule", "is_meant"),
    [
        *((rule, True) for rule in ("Agent", "Agent(*)", "Agent(tester)", "Agent(reviewer, tester)")),
        *((rule, False) for rule in ("Agent(reviewer)", "Agent(test)", "Read")),
    ],
)
def test_rule_matches_the_agent_types_it_names(workspace: Workspace, rule: str, *, is_meant: bool) -> None:
    assert isinstance(_judge_start(Permissions(deny=_rules(rule)), "tester", workspace), Denied) is is_meant


def test_definition_that_names_agent_types_starts_no_others(workspace: Workspace) -> None:
    only = _rules("Agent(reviewer, tester)")
    permissions = Permissions(limits=(RoleLimit(name="x", reason="no", allowed=frozenset({"Agent"}), only=only),))
    assert not isinstance(_judge_start(permissions, "tester", workspace), Denied)
    assert isinstance(_judge_start(permissions, "deployer", workspace), Denied)


@pytest.mark.parametrize(
    ("rule", "url", "is_meant"),
    [
        *((rule, "https://a.org", True) for rule in ("WebFetch", "WebFetch(*)", "*")),
        ("WebFetch(domain:a.org)", "https://A.org:8443/x", True),
        ("WebFetch(domain:a.org)", "https://www.a.org", False),
        ("WebFetch(domain:*.a.org)", "https://www.a.org", True),
        ("WebFetch(domain:*.a.org)", "https://a.org", False),
        ("WebFetch(domain:127.0.0.1)", "http://127.0.0.1:80", True),
        *((rule, "https://a.org", False) for rule in ("Read", "Bash")),
    ],
)
def test_rule_matches_hosts(rule: str, url: str, workspace: Workspace, *, is_meant: bool) -> None:
    assert isinstance(_judge_fetch(Permissions(deny=_rules(rule)), url, workspace), Denied) is is_meant
    asked = _judge_fetch(Permissions(ask=_rules(rule)), url, workspace)
    assert isinstance(asked, NeedsPrompt) is is_meant
    if isinstance(asked, NeedsPrompt):
        assert asked.question.subject == url


def test_session_approval_applies_to_host(workspace: Workspace) -> None:
    asked = _judge_fetch(Permissions(ask=_rules("WebFetch")), "https://a.org/x", workspace)
    assert isinstance(asked, NeedsPrompt)
    assert asked.question.rules == ("WebFetch(domain:a.org)",)


@pytest.mark.parametrize("mode", ["default", "plan", "dontAsk"])
def test_a_listed_host_needs_no_permission(mode: Mode, workspace: Workspace) -> None:
    assert _judge_fetch(Permissions(mode=mode), "https://a.org", workspace) == Allowed()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Agent(reviewer,,tester)", r"names of agent types.*Agent\(reviewer\)"),
        *(
            (f"WebFetch({host})", "write for example WebFetch")
            for host in ("a.org", "domain:", "domain:a/b", "https://a.org")
        ),
    ],
)
def test_invalid_rule_is_refused_with_an_example(text: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=hint):
        Rule.parse(text, "test")
