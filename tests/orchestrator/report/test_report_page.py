"""The page: all sections, self-contained, escaped text, bounded size."""

import re
import types
import typing
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from coterie.agents.events.agent_events import ProgressSummarized
from coterie.orchestrator.gateway.cost_report import build_cost_report
from coterie.orchestrator.gateway.ledger import read_ledger
from coterie.orchestrator.report.collect import collect_report
from coterie.orchestrator.report.page import render_page
from coterie.orchestrator.report.report_data import ApprovalSummary, NotableEvent, SessionFacts, UnreadableFile
from tests.examples import examples
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.report.html_page import Page, source_of
from tests.orchestrator.report.report_sessions import BEGAN, SessionBuilder, fixed_parser
from tests.orchestrator.session_writer import reply

SECTIONS = ["result", "timeline", "agents", "messages", "cache", "costs", "approvals", "events"]
NOW = BEGAN + 100
pytestmark = pytest.mark.usefixtures("home")
MEGABYTE = 1_000_000


def page_of(builder: SessionBuilder) -> Page:
    return Page(render_page(collect_report(builder.session, NOW)))


@pytest.fixture
def facts(tmp_path: Path) -> SessionFacts:
    return collect_report(fixed_parser(tmp_path).session, NOW)


@pytest.fixture
def page(facts: SessionFacts) -> Page:
    return Page(render_page(facts))


def test_page_has_outcome_totals_and_every_section_with_a_link(page: Page) -> None:
    assert [found["id"] for tag, found in page.elements if tag == "section"] == SECTIONS
    assert [found["href"] for tag, found in page.elements if tag == "a"] == [f"#{id_}" for id_ in SECTIONS]
    head = page.text()
    assert "Mend the parser." in head
    for words in ("state ended completed", "duration 40 s", "cost $0.134300", "agents 4 1 restarts", "model calls 6"):
        assert words in head
    assert "read from the cache 53 % 7,900 tokens missed messages 5 1 dead letters, 1 pending" in head


def test_timeline_has_a_lane_with_states_for_each_agent(page: Page) -> None:
    lanes = [
        found["aria-label"] for tag, found in page.elements if tag == "svg" and ": " in (found.get("aria-label") or "")
    ]
    assert lanes == ["main: done", "scout: done", "slow: killed", "planner: done"]
    bars = [
        (found["class"], found["x"], found["width"])
        for tag, found in page.elements
        if tag == "rect" and str(found.get("class")).startswith("s-") and "%" in str(found["width"])
    ]
    assert bars[:4] == [
        ("s-starting", "0.00%", "2.50%"),
        ("s-running", "2.50%", "20.00%"),
        ("s-waiting", "22.50%", "60.00%"),
        ("s-running", "82.50%", "17.50%"),
    ]
    told = page.text("timeline")
    for words in (
        "waiting: 3 agents +9.00 s, for 24 s",
        "Bash failed: exit code 1, +13.00 s, for 2 s",
        "Reading parser.py (+13.00 s)",
        "killed, +16.00 s: Its process was ended by SIGKILL.",
        "started again, start 2, +17.00 s: 1 of 2: Its process was ended by SIGKILL.",
    ):
        assert words in told


def test_messages_and_starts_are_in_order_of_time(page: Page) -> None:
    told = page.text("messages")
    words = [
        "main starts scout Find the bug.",
        "main starts slow Wait for ever.",
        "main starts planner Plan the change.",
        "main → scout where to look delivered +12.00 s",
        "scout is started again 1 of 2: Its process was ended by SIGKILL.",
        "scout → main task notification completed: It was line 8. delivered +33.00 s",
        "main → slow Are you there? not delivered: expired: nobody took it",
        "planner → main of one process delivered +34.00 s",
        "main → planner Thank you. pending",
    ]
    places = [told.index(each) for each in words]
    assert places == sorted(places)


def test_cache_chart_has_every_request_and_miss_causes(page: Page, facts: SessionFacts) -> None:
    told = page.text("cache")
    assert "request 2: cache miss, cause tools: Bash changed; 2,000 tokens read, 9,900 before" in told
    columns = [found for tag, found in page.elements if tag == "rect" and found.get("class") == "whole"]
    assert len(columns) == len(facts.requests)
    # Of 10,000 tokens, the highest prompt: 9,900 were expected, 2,000 read and 8,000 written.
    drawn = [found for tag, found in page.elements if tag == "rect" and found.get("class") == "missed" and "x" in found]
    assert [(found["y"], found["height"]) for found in drawn] == [("1", "79")]


def test_page_costs_equal_those_of_coterie_costs(page: Page, facts: SessionFacts) -> None:
    lines = read_ledger(facts.session.directory / "ledger.jsonl").lines
    report = build_cost_report(facts.session.directory)
    assert facts.costs.total == report.total
    assert facts.costs.agents == report.rows
    assert facts.costs.purposes == build_cost_report(facts.session.directory, "purpose").rows
    assert facts.costs.models == build_cost_report(facts.session.directory, "model").rows
    assert facts.costs.alternatives == report.alternatives
    told = page.text("costs")
    for row in report.rows:
        used = row.spending.usage
        counts = f"{row.spending.requests} {used.read:,} {used.write_5m:,} {used.input:,} {used.output:,}"
        cost = (
            f"{100 * row.spending.cached_share:.0f} % {row.spending.missed:,} {row.spending.cost:.6f} {row.subtree:.6f}"
        )
        assert f"{counts} {cost}" in told
    assert f"actual cost ${sum((each.cost_usd for each in lines), Decimal(0)):.6f}" in told
    assert "of this summary $0.000980" in told


def test_approvals_notable_events_and_unreadable_files_are_listed(page: Page, facts: SessionFacts) -> None:
    damaged = attrs.evolve(facts, unread=(UnreadableFile(where="roster.json", reason="it is not a roster"),))
    assert "roster.json : it is not a roster" in Page(render_page(damaged)).text()
    approvals = page.text("approvals")
    assert "ignored answer by approvals/p1.json, +15.00 s: an answer in a file proves nothing" in approvals
    assert "rejected by human, +18.00 s: Smaller, please." in approvals
    assert "approved by human, +27.00 s" in approvals
    events = page.text("events")
    assert "Bash failed after 2 s: exit code 1" in events
    assert "model call failed: overloaded; retrying in 1.5 s" in events


def test_page_of_an_empty_session_explains_every_section(tmp_path: Path) -> None:
    page = page_of(SessionBuilder.begin(tmp_path, task=""))
    assert "(no task)" in page.text()
    for section in SECTIONS:
        assert re.search(r" No [a-z]+", page.text(section)), section


def test_page_needs_no_other_file_and_no_network(page: Page) -> None:
    assert not [found for _, found in page.elements if {"src", "srcset", "action", "background"} & set(found)]
    assert {tag for tag, _ in page.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "use",
        "image",
    } == set()
    assert "url(" not in page.inside("style")
    assert "@import" not in page.inside("style")
    assert not re.search(r"fetch|XMLHttpRequest|import\(|eval", page.inside("script"))


def test_policy_allows_only_the_style_and_script_of_the_page(page: Page) -> None:
    assert page.policy == {
        "default-src": ["'none'"],
        "style-src": [source_of(page.inside("style"))],
        "script-src": [source_of(page.inside("script"))],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    # So the browser would not follow these, and they may not be needed.
    assert not [found for _, found in page.elements if any(key == "style" or key.startswith("on") for key in found)]


HOSTILE = (
    "</title></style></script></svg><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' style='position:fixed",
    "--><!--",
    "]]><![CDATA[",
    "${head} $head $$",
    "\u202egnp.exe\u2066\x1b]0;title\x07\x00\ud800",
    "&lt;b&gt; &amp; &#60;",
    "line\nline\r\nline\u2028line",
    "javascript:alert(1)",
)


def poisoned(value: Any, text: str) -> Any:
    """*value* with *text* in place of every free text."""
    if isinstance(value, tuple):
        return tuple(poisoned(each, text) for each in value)
    if isinstance(value, msgspec.Struct):
        changed = {name: text for name in value.__struct_fields__ if name == "detail"}
        return msgspec.structs.replace(value, **changed)
    if not attrs.has(type(value)):
        return value
    kinds = typing.get_type_hints(type(value))
    changed = {}
    for field in attrs.fields(type(value)):
        old = getattr(value, field.name)
        kind = kinds[field.name]
        is_text = kind is str or (isinstance(kind, types.UnionType) and set(get_args(kind)) <= {str, types.NoneType})
        changed[field.alias] = text if is_text else poisoned(old, text)
    return type(value)(**changed)


@pytest.fixture
def full(facts: SessionFacts) -> SessionFacts:
    """A session whose page has every kind of element."""
    return attrs.evolve(facts, unread=(UnreadableFile(where="x", reason="x"),), error="x")


@pytest.fixture
def usual(full: SessionFacts) -> set[tuple[str, frozenset[str]]]:
    """Elements of pages without hostile text."""
    pages = (full, poisoned(full, "harmless"), poisoned(full, "two\nlines"))
    return set[tuple[str, frozenset[str]]]().union(*(Page(render_page(each)).shapes() for each in pages))


@pytest.mark.slow
@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.sampled_from(HOSTILE), st.text(), st.lists(st.sampled_from(HOSTILE)).map("".join)))
def test_no_text_becomes_markup(full: SessionFacts, usual: set[tuple[str, frozenset[str]]], text: str) -> None:
    """A page in which every text is hostile has only elements that harmless pages have too."""
    page = Page(render_page(poisoned(full, text)))
    assert page.shapes() - usual == set()
    assert page.policy["script-src"] == [source_of(page.inside("script"))]
    assert [found["href"] for tag, found in page.elements if tag == "a"] == [f"#{id_}" for id_ in SECTIONS]
    assert not set(page.content) & set("\u202e\u2066\x1b\x07\x00\x7f")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_from_file_to_page(tmp_path: Path, text: str) -> None:
    """The text goes through the files, as a model, a peer and a user write them."""
    written = text.replace("\ud800", "")
    builder = SessionBuilder.begin(tmp_path, task=written)
    builder.join(main=written)
    builder.becomes(1, "main", "running")
    builder.add_reply(2, "main", written, reply(1))
    builder.agent(3, "main", ProgressSummarized(text=written, turn=1, seconds=0.1, cost_usd="0"))
    letter = builder.make_message(4, "main", "main", written, summary=None)
    builder.mail.store(letter)
    shown = f'<message from="peer" sender="peer" kind="message" id="q1" session="s">\n{written}\n</message>'
    builder.add_delivery(5, "main", shown, "q1")
    builder.bill(line(written or "x", purpose=written, at=BEGAN + 3))
    page = page_of(builder.write_all())
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not [found for _, found in page.elements if any(key == "style" or key.startswith("on") for key in found)]
    seen = " ".join(text.partition("\x1b")[0].replace("\u202e", "").replace("\u2066", "").split())
    assert seen in page.text()
    assert seen in page.text("messages")


@pytest.mark.slow
def test_page_size_is_bounded(facts: SessionFacts) -> None:
    endless = "word " * 20_000
    (lead, scout, *_), mail = facts.agents, facts.letters
    busy = attrs.evolve(
        scout,
        task=endless,
        why=endless,
        result=endless,
        stretches=scout.stretches * 5_000,
        tool_calls=scout.tool_calls * 20_000,
        progress=tuple(attrs.evolve(each, text=endless) for each in scout.progress * 50),
        marks=scout.marks * 2_000,
    )
    large = attrs.evolve(
        facts,
        session=attrs.evolve(facts.session, task=endless),
        agents=(lead, busy, *(attrs.evolve(scout, name=f"worker-{number}") for number in range(100))),
        letters=tuple(attrs.evolve(each, reason=endless, sender=f"worker-{n}") for n in range(100) for each in mail)
        * 50,
        requests=facts.requests * 2_000,
        approvals=tuple(ApprovalSummary(id=endless, at=1, subject=endless, agent=endless) for _ in range(2_000)),
        notables=tuple(NotableEvent(at=1, agent=endless, topic="errors", text=endless) for _ in range(2_000)),
        unread=tuple(UnreadableFile(where=endless, reason=endless) for _ in range(2_000)),
        result=endless,
        error=endless,
    )
    content = render_page(large)
    assert len(content) < 4 * MEGABYTE
    assert "more are not shown" in content.decode()
    assert " others" in Page(content).text("messages")
