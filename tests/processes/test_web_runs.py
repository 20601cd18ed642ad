"""Web pages in real runs: readable only from allowed hosts."""

from collections.abc import Iterator

import pytest

from coterie.agents.events.agent_events import RunStarted
from tests.agents.tools.web.local_site import Site, open_site
from tests.processes.project_shell import ProjectShell

pytestmark = pytest.mark.slow


@pytest.fixture
def site() -> Iterator[Site]:
    with open_site() as opened:
        opened.page("/", "<title>Home</title><p>The answer is <b>42</b>.")
        yield opened


def script(site: Site) -> str:
    """Return a script in which the model requests a page, and starts another agent that does."""
    return f"""
main:
  - tools: [{{WebFetch: {{url: "http://localhost:{site.port}/"}}}}]
  - text: "It says: {{{{last_tool_result}}}}"
    tools: [{{WebFetch: {{url: "http://localhost:{site.port + 1}/"}}}}]
  - text: "And there: {{{{last_tool_result}}}}"
  - {{text: "Again: {{{{last_tool_result}}}}", times: always}}
"""


def list_hosts(place: ProjectShell, *hosts: str) -> None:
    """Write *hosts* into the settings of the user."""
    place.write("../home/settings.toml", f"[web]\nhosts = {list(hosts)!r}\n")


def test_only_pages_of_allowed_hosts_are_read(place: ProjectShell, site: Site) -> None:
    list_hosts(place, f"localhost:{site.port}", f"127.0.0.1:{site.port}", f"[::1]:{site.port}")
    done = place.coterie("run", "look", *place.model(script(site)))
    assert done.returncode == 0, done.stderr
    assert "The answer is **42**." in done.stdout
    assert f"localhost:{site.port + 1} is not among the allowed hosts" in done.stdout
    assert site.asked == [(f"localhost:{site.port}", "/")]
    # The conversation keeps the tool; the current list decides about calls.
    list_hosts(place)
    again = "main:\n  - text: x\n  - text: x\n  - text: x\n" + script(site).removeprefix("\nmain:\n")
    done = place.coterie("resume", place.session.id, "look again", *place.model(again))
    assert "is not among the allowed hosts: none" in done.stdout, done.stderr
    assert ["WebFetch" in run.tools for run in place.events(RunStarted)] == [True, True]
    assert len(site.asked) == 1
