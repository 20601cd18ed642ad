"""HTML page of `coterie report`: one file that loads nothing and permits only its own style and script."""

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
"""Content of the page's `generator` meta tag, by which `coterie report` recognizes an older report."""
HEAD_BYTES = 1024
"""Number of bytes at the start of a file in which `GENERATOR` is searched, to recognize an older report."""
TEXT_LIMIT = 100_000
"""Maximum characters that the page shows of the session's task, and of its result."""
TASK = 300
"""Maximum characters of the task in the page's main heading; a longer task can be expanded below it."""

_HERE = Path(__file__).parent


def render_page(facts: SessionFacts) -> bytes:
    """Return the complete HTML page about the session in *facts*, as UTF-8 bytes."""
    style, script = ((_HERE / name).read_text() for name in ("report.css", "report.js"))
    slots = {
        "generator": GENERATOR,
        "version": text(__version__),
        "title": text(f"Coterie session {facts.session.id}: {one_line(facts.session.task, 80)}"),
        "style": style,
        "script": script,
        # Only this style and this script are allowed, even if escaping failed.
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
    """Return the SHA-256 digest of an inline style or script, as a content security policy requires it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _section(id_: str, title: str, content: Html) -> Html:
    return tag("section", tag("h2", text(title)), content, id=id_)


def _head(facts: SessionFacts) -> Html:
    session = facts.session
    about = f"{session.id} · {session.model} · {session.project} · started {moment_text(session.started)}"
    starts = f" · {session.starts} starts" if session.starts > 1 else ""
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
    """Yield the key figures at the top of the page, such as cost and duration: title, figure, detail (may be empty)."""
    spent, took = facts.costs.total, facts.last - facts.session.started
    before = facts.first - facts.session.started
    restarts = sum(agent.restarts for agent in facts.agents)
    dead = sum(letter.state == "dead" for letter in facts.letters)
    waiting = sum(letter.state == "waiting" for letter in facts.letters)
    yield "state", facts.state, facts.reason or ""
    yield (
        "running for" if facts.state == "running" else "duration",
        span_text(took),
        f"{span_text(before)} until the first event" if before >= 0.1 else "",
    )
    yield "cost", f"${spent.cost:.6f}", f"of which at most ${spent.estimated_cost:.6f}" if spent.estimated else ""
    yield "agents", f"{len(facts.agents):,}", f"{restarts:,} restarts" if restarts else ""
    yield "model calls", f"{spent.requests:,}", ""
    yield (
        "read from the cache",
        f"{100 * spent.cached_share:.0f} %",
        f"{spent.missed:,} tokens missed" if spent.missed else "",
    )
    left = ", ".join(f"{count:,} {words}" for count, words in ((dead, "dead letters"), (waiting, "pending")) if count)
    yield "messages", f"{len(facts.letters):,}", left


def _whole_task(task: str) -> Html | None:
    if one_line(task, TASK) == task.strip():
        return None
    return tag("details", tag("summary", text("full task")), _long_text(task))


def _result(facts: SessionFacts) -> Html:
    error = None if facts.error is None else tag("p", line(f"Error: {facts.error}"), class_="bad")
    if facts.result is None:
        return join((error, note("No result: the run has not finished.")))
    if not facts.result:
        return join((error, note("The last reply is empty.")))
    return join((error, _long_text(facts.result)))


def _long_text(words: str) -> Html:
    """Render *words* with line breaks, cut to `TEXT_LIMIT` characters with a note about those not shown."""
    left = len(words) - TEXT_LIMIT
    more = note(f"{left:,} more characters are not shown; --json has them.") if left > 0 else None
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
"""Sections of the page in order: anchor, text of the link to it, heading, and function that renders its content."""
