"""HTML page of a report: one self-contained file with a strict content security policy."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

from coterie import __version__
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.report.cache_section import render_cache
from coterie.orchestrator.report.cost_section import render_costs
from coterie.orchestrator.report.html import Html, join, line, note, tag, text
from coterie.orchestrator.report.report_data import SessionFacts
from coterie.orchestrator.report.sequence_diagram import render_sequence
from coterie.orchestrator.report.tables import render_agents, render_approvals, render_notables, render_unreadable_files
from coterie.orchestrator.report.time_scale import moment_text, span_text
from coterie.orchestrator.report.timeline import render_timeline

GENERATOR = "coterie report"
"""By which a page is known again as one of ours."""
HEAD_BYTES = 1024
"""Within the first of which it says so."""
TEXT_LIMIT = 100_000
"""Characters of the task and of the result that are shown."""
TASK = 300
"""Characters of the task that are its title."""

_HERE = Path(__file__).parent


def render_page(facts: SessionFacts) -> bytes:
    """The page about *facts*, in UTF-8."""
    style, script = ((_HERE / name).read_text() for name in ("report.css", "report.js"))
    slots = {
        "generator": GENERATOR,
        "version": text(__version__),
        "title": text(f"Coterie session {facts.session.id}: {one_line(facts.session.task, 80)}"),
        "style": style,
        "script": script,
        # Only this very style and this very script count, whatever text of others has become.
        "style_digest": _digest(style),
        "script_digest": _digest(script),
        "head": _head(facts),
        "nav": join(tag("a", text(short), href=f"#{id_}") for id_, short, _, _ in _SECTIONS),
        "unread": render_unreadable_files(facts.unread) or "",
        "sections": join(_section(id_, title, make(facts)) for id_, _, title, make in _SECTIONS),
        "read_at": text(moment_text(facts.read_at)),
    }
    return Template((_HERE / "page.html").read_text()).substitute(slots).encode()


def _digest(content: str) -> str:
    """As a content security policy names what stands in the page itself."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _section(id_: str, title: str, content: Html) -> Html:
    return tag("section", tag("h2", text(title)), content, id=id_)


def _head(facts: SessionFacts) -> Html:
    session = facts.session
    about = f"{session.id} · {session.model} · {session.project} · begun {moment_text(session.started)}"
    starts = f" · started {session.starts} times" if session.starts > 1 else ""
    tiles = [
        tag(
            "div",
            tag("dt", text(title)),
            tag("dd", text(value)),
            tag("dd", line(more), class_="more") if more else None,
        )
        for title, value, more in _tiles(facts)
    ]
    return join(
        (
            tag("p", line(about + starts, TASK), class_="about"),
            tag("h1", line(session.task, TASK) or text("(no task)")),
            _whole_task(session.task),
            tag("dl", tiles),
        )
    )


def _tiles(facts: SessionFacts) -> Iterator[tuple[str, str, str]]:
    """What a reader wants to know first: a title, a figure, and more about it."""
    spent, took = facts.costs.total, facts.last - facts.session.started
    before = facts.first - facts.session.started
    restarts = sum(agent.restarts for agent in facts.agents)
    dead = sum(letter.state == "dead" for letter in facts.letters)
    waiting = sum(letter.state == "waiting" for letter in facts.letters)
    yield "state", facts.state, facts.reason or ""
    yield (
        "runs since" if facts.state == "running" else "took",
        span_text(took),
        f"{span_text(before)} until the first event" if before >= 0.1 else "",
    )
    yield "cost", f"${spent.cost:.6f}", f"${spent.estimated_cost:.6f} of it at most" if spent.estimated else ""
    yield "agents", f"{len(facts.agents):,}", f"{restarts:,} started again" if restarts else ""
    yield "model calls", f"{spent.requests:,}", ""
    yield (
        "read from the cache",
        f"{100 * spent.cached_share:.0f} %",
        f"{spent.missed:,} tokens missed" if spent.missed else "",
    )
    left = ", ".join(f"{count:,} {words}" for count, words in ((dead, "dead"), (waiting, "waiting")) if count)
    yield "messages", f"{len(facts.letters):,}", left


def _whole_task(task: str) -> Html | None:
    if one_line(task, TASK) == task.strip():
        return None
    return tag("details", tag("summary", text("the whole task")), _long_text(task))


def _result(facts: SessionFacts) -> Html:
    error = None if facts.error is None else tag("p", line(f"Error: {facts.error}"), class_="bad")
    if facts.result is None:
        return join((error, note("There is none: the run has not come to an end.")))
    if not facts.result:
        return join((error, note("It said nothing in the end.")))
    return join((error, _long_text(facts.result)))


def _long_text(words: str) -> Html:
    """A long text as it was written."""
    left = len(words) - TEXT_LIMIT
    more = note(f"{left:,} more characters are left out; --json has them.") if left > 0 else None
    return join((tag("div", text(words[:TEXT_LIMIT]), class_="said"), more))


_SECTIONS: tuple[tuple[str, str, str, Callable[[SessionFacts], Html]], ...] = (
    ("result", "Result", "Result", _result),
    ("timeline", "Timeline", "Timeline", render_timeline),
    ("agents", "Agents", "Agents", render_agents),
    ("messages", "Messages", "Messages", render_sequence),
    ("cache", "Cache", "Cache, request by request", render_cache),
    ("costs", "Costs", "Costs", render_costs),
    ("approvals", "Approvals", "Approvals", render_approvals),
    ("events", "Events", "Notable events", render_notables),
)
"""What each is called in an address, where one chooses, and above it."""
