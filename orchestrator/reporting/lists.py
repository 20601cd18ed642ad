"""What a report lists line by line: approvals, notable events, and what could not be read."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from coterie.orchestrator.reporting.facts import Answer, Approval, Notable, SessionFacts, Unread
from coterie.orchestrator.reporting.markup import Html, cell, join, line, note, row, table, tag, text
from coterie.orchestrator.reporting.scale import since_text

SHOWN = 200
"""Approvals, and notable events of each topic, that are shown: of more the first half and the last."""

Item = TypeVar("Item")


def approvals(facts: SessionFacts) -> Html:
    """Who asked for what, and who said what to it."""
    if not facts.approvals:
        return note("Nobody had to ask for approval.")
    head = ("when", "agent", "what", "who decides", "answers")
    shown = _ends(facts.approvals)
    return join((table(head, (_approval(each, facts.first) for each in shown)), _more(facts.approvals, shown)))


def _approval(each: Approval, first: float) -> Html:
    again = f", start {each.incarnation}" if each.incarnation > 1 else ""
    answers = [tag("div", join(_answer(answer, first))) for answer in _ends(each.answers)]
    if each.is_open:
        answers.append(tag("div", tag("b", text("open"))))
    return row(
        cell(text("not asked for" if each.at is None else since_text(each.at, first)), class_="when"),
        cell(line(f"{each.agent}{again}")),
        cell(tag("b", line(each.what)), text(" "), line(each.subject), tag("div", line(each.id), class_="faint")),
        cell(line(each.by)),
        cell(answers),
    )


def _answer(answer: Answer, first: float) -> Iterator[Html]:
    is_void = answer.verdict == "refused"
    is_bad = is_void or answer.verdict == "rejected"
    yield tag("b", text("did not count" if is_void else answer.verdict), class_="bad" if is_bad else None)
    whose = f"an answer of {answer.by}" if is_void else f"by {answer.by}"
    yield text(" ")
    yield line(f"{whose}, {since_text(answer.at, first)}{': ' if answer.text else ''}{answer.text}")


def notables(facts: SessionFacts) -> Html:
    """The list, with what filters it where the page may run its script."""
    if not facts.notables:
        return note("Nothing went wrong, and no layer had to do anything.")
    by_topic: defaultdict[str, list[Notable]] = defaultdict(list)
    for each in facts.notables:
        by_topic[each.topic].append(each)
    shown = sorted((each for some in by_topic.values() for each in _ends(some)), key=lambda each: each.at)
    rows = (_notable(each, facts.first) for each in shown)
    listed = table(("when", "agent", "about", "what"), rows, class_="notables")
    return join((_filter(by_topic), listed, _more(facts.notables, shown)))


def _ends(found: Sequence[Item]) -> Sequence[Item]:
    """All, or of very many the first and the last."""
    half = SHOWN // 2
    return found if len(found) <= SHOWN else [*found[:half], *found[-half:]]


def _more(found: Sequence[Item], shown: Sequence[Item]) -> Html | None:
    left = len(found) - len(shown)
    return note(f"{left:,} more are left out here; --json has every one.") if left else None


def _filter(by_topic: Mapping[str, Sequence[Notable]]) -> Html:
    """Hidden until the script is there to make it work."""
    boxes = [
        tag("label", tag("input", type="checkbox", checked=True, value=topic), text(f" {topic} ({len(found):,})"))
        for topic, found in sorted(by_topic.items())
    ]
    words = tag("input", type="search", placeholder="agent or words", aria_label="agent or words")
    return tag("form", boxes, words, id="filter", hidden=True)


def _notable(each: Notable, first: float) -> Html:
    return row(
        cell(text(since_text(each.at, first) if each.at else ""), class_="when"),
        cell(line(each.agent)),
        cell(text(each.topic)),
        cell(line(each.text)),
        data_topic=each.topic,
    )


def unread(found: Sequence[Unread]) -> Html | None:
    """What is missing in the page; None if nothing is."""
    if not found:
        return None
    shown = _ends(found)
    places = [tag("li", tag("code", line(each.where)), line(f": {each.reason}")) for each in shown]
    words = tag("p", tag("b", text("This could not be read, and is missing below:")))
    return tag("aside", words, tag("ul", places), _more(found, shown), class_="warning")
