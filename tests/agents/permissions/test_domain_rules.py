"""Rules for web pages, by host."""

from pathlib import Path

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt, Verdict
from coterie.agents.tools.tool import Workspace
from coterie.agents.tools.web.hosts import HostList, WebAddress
from coterie.agents.tools.web.web_fetch import PageCache, WebFetch, WebFetchInput
from coterie.errors import ConfigInvalid


async def _nothing(_address: WebAddress, _hosts: tuple[HostList, ...]) -> str:
    return ""


def _judge(url: str, directory: Path, mode: Mode = "default", *, ask: str = "", deny: str = "") -> Verdict:
    asked, denied = (tuple(Rule.parse(text, "test") for text in (rule,) if text) for rule in (ask, deny))
    tool = WebFetch(hosts=(), cache=PageCache(lambda: 0.0), load=_nothing)
    permissions = Permissions(mode=mode, ask=asked, deny=denied)
    return permissions.evaluate(tool, WebFetchInput(url=url), Workspace(root=directory, scratch=directory))


@pytest.mark.parametrize(
    ("rule", "url", "is_meant"),
    [
        ("WebFetch", "https://a.org", True),
        ("WebFetch(*)", "https://a.org", True),
        ("*", "https://a.org", True),
        ("WebFetch(domain:a.org)", "https://A.org:8443/x", True),
        ("WebFetch(domain:a.org)", "https://www.a.org", False),
        ("WebFetch(domain:*.a.org)", "https://www.a.org", True),
        ("WebFetch(domain:*.a.org)", "https://a.org", False),
        ("WebFetch(domain:127.0.0.1)", "http://127.0.0.1:80", True),
        ("Read", "https://a.org", False),
        ("Bash", "https://a.org", False),
    ],
)
def test_rule_matches_hosts(rule: str, url: str, tmp_path: Path, *, is_meant: bool) -> None:
    assert isinstance(_judge(url, tmp_path, deny=rule), Denied) is is_meant
    asked = _judge(url, tmp_path, ask=rule)
    assert isinstance(asked, NeedsPrompt) is is_meant
    if isinstance(asked, NeedsPrompt):
        assert asked.question.subject == url


def test_session_approval_applies_to_host(tmp_path: Path) -> None:
    asked = _judge("https://a.org/x", tmp_path, ask="WebFetch")
    assert isinstance(asked, NeedsPrompt)
    assert asked.question.rules == ("WebFetch(domain:a.org)",)


@pytest.mark.parametrize("mode", ["default", "plan", "dontAsk"])
def test_a_listed_host_needs_no_permission(mode: Mode, tmp_path: Path) -> None:
    assert _judge("https://a.org", tmp_path, mode) == Allowed()


@pytest.mark.parametrize(
    "text", ["WebFetch(a.org)", "WebFetch(domain:)", "WebFetch(domain:a/b)", "WebFetch(https://a.org)"]
)
def test_invalid_host_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="write for example WebFetch"):
        Rule.parse(text, "test")
