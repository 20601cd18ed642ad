"""Pages in real runs: only where a host is listed, and from that host alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.agents.events.agent_events import RunStarted
from coterie.orchestrator.events.session_reader import read_session
from tests.agents.tools.web.local_site import Site, open_site
from tests.processes.project_shell import ProjectShell

pytestmark = pytest.mark.slow


@pytest.fixture
def site() -> Iterator[Site]:
    with open_site() as opened:
        opened.page("/", "<title>Home</title><p>The answer is <b>42</b>.")
        yield opened


def script(site: Site) -> str:
    """A model that asks, listed or not, and lets another ask."""
    return f"""
main:
  - tools: [{{WebFetch: {{url: "http://localhost:{site.port}/"}}}}]
  - text: "It says: {{{{last_tool_result}}}}"
    tools: [{{WebFetch: {{url: "http://localhost:{site.port + 1}/"}}}}]
  - text: "And there: {{{{last_tool_result}}}}"
  - {{text: "Again: {{{{last_tool_result}}}}", times: always}}
"""


def list_hosts(project: Path, *hosts: str) -> None:
    """Put *hosts* into the settings of the user."""
    settings = project.parent / "home/settings.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"[web]\nhosts = {list(hosts)!r}\n")


def tools(place: ProjectShell) -> list[list[str]]:
    """Those of each run."""
    events = [observed.event for observed in read_session(place.session.directory)]
    return [event.tools for event in events if isinstance(event, RunStarted)]


def test_a_page_of_a_listed_host_is_read_and_no_other(project: Path, site: Site) -> None:
    place = ProjectShell(project)
    list_hosts(project, f"localhost:{site.port}", f"127.0.0.1:{site.port}", f"[::1]:{site.port}")
    done = place.coterie("run", "look", *place.model(script(site)))
    assert done.returncode == 0, done.stderr
    assert "The answer is **42**." in done.stdout
    assert f"localhost:{site.port + 1} is not among the allowed hosts" in done.stdout
    assert site.asked == [(f"localhost:{site.port}", "/")]
    # The conversation has the tool, whatever is listed by now; what is listed decides over calls.
    list_hosts(project)
    again = "main:\n  - text: x\n  - text: x\n  - text: x\n" + script(site).removeprefix("\nmain:\n")
    done = place.coterie("resume", place.session.id, "look again", *place.model(again))
    assert "is not among the allowed hosts: none" in done.stdout, done.stderr
    assert ["WebFetch" in run for run in tools(place)] == [True, True]
    assert len(site.asked) == 1


def test_without_a_list_there_is_no_such_tool(project: Path, site: Site) -> None:
    place = ProjectShell(project)
    done = place.coterie("run", "look", *place.model(script(site)))
    assert "There is no tool 'WebFetch'" in done.stdout, done.stderr
    assert ["WebFetch" in run for run in tools(place)] == [False]
    assert site.asked == []


def test_a_list_that_is_none_ends_the_run_at_its_start(project: Path, site: Site) -> None:
    place = ProjectShell(project)
    list_hosts(project, "https://docs.python.org/3")
    done = place.coterie("run", "look", *place.model(script(site)))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert (
        "settings.toml: web.hosts has 'https://docs.python.org/3', which is not a host; write docs.python.org" in line
    )
