"""The web as an agent has it: a tool that is there if a host was listed when its conversation began."""

from coterie.agents.conversation import Prefix
from coterie.agents.tools.tool import Tool
from coterie.agents.tools.web_fetch import NAME, WebFetch
from coterie.agents.web.cache import PageCache
from coterie.agents.web.hosts import Hosts
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.settings import Settings


def web_tools(work: Work, seat: Seat, begun: Prefix | None) -> tuple[Tool, ...]:
    """WebFetch, if the conversation that has *begun* has it; for a new one, if a host is listed.

    A list that has become empty since refuses every call: what stands in a request stays. Raises `ConfigInvalid`.
    """
    # Of all processes only an agent's needs it, and it takes a client of HTTP along.
    from coterie.agents.web.loading import load_page  # noqa: PLC0415

    hosts = tuple(hosts_of(settings) for settings in (work.settings, *work.above))
    is_there = all(each.entries for each in hosts) if begun is None else _has_tool(begun)
    return (WebFetch(hosts=hosts, cache=PageCache(seat.clock.now), load=load_page),) if is_there else ()


def hosts_of(settings: Settings) -> Hosts:
    """The hosts that *settings* list. Raises `ConfigInvalid`."""
    return Hosts.parse(settings.web.hosts, settings.item_sources("web.hosts"))


def _has_tool(prefix: Prefix) -> bool:
    beginning = b'{"name":"%s"' % NAME.encode()
    return any(segment.data.startswith(beginning) for segment in prefix.segments if segment.section == "tools")
