"""Cost of working for days in a small window: all layers compared with common practice, in dollars and kept user texts.

One session of recorded runs, with thousands of turns and millions of tokens of tool results, runs once with each
strategy: claude-opus-5-5 with thinking, the strict embedded server, and a window of 200,000 tokens that it enforces.
Dollars are computed by the server. A rewrite is what a turn writes to the cache after a new epoch, or after the API had
cleared.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from statistics import median

import msgspec
import trio

from benchmarks.context_outcome import EARLY, Outcome
from benchmarks.context_run import ContextRunOrder, run_in_process
from benchmarks.context_session import Size
from benchmarks.context_strategies import EDITING, OURS, OVERFLOWING, STRATEGIES, SUMMARISING, WITHOUT_NOTES
from benchmarks.figures import Figure, aligned, at_least, at_most, missed, rows
from benchmarks.recorded_runs import DIRECTORY, has_runs

WHOLE = Size(calls=3_000, window=200_000, looks=tuple(range(3, 11)))
YOUNG = msgspec.structs.replace(WHOLE, calls=EARLY.stop + 1)
RESULTS = 5_000_000
SEED = 2
AT_ONCE = 2
"""Number of sessions that run at the same time; each has its own server."""

OTHERS = (OVERFLOWING.name, SUMMARISING.name, EDITING.name)
NOTES_SHARE = 0.1
BY_NOTES = 0.8
GROWTH = 1.5
COMPACTION_MS = 50
COLUMNS = (
    *("turns", "dollars", "turns $", "rewrites $", "notes $", "summaries $", "ratio", "largest", "cached"),
    *("epochs", "by notes", "by model", "by rule", "breaks", "expired", "refused", "ended", "words lost"),
)
LEGEND = (
    "turns $: all that turns cost but rewrites; ratio: dollars, of all layers; largest: prompt in tokens; by ..: "
    "compactions; breaks: of the cache, unexpected or expired; refused: too long for the server; ended: before its time"
)


async def measure() -> list[Figure]:
    """Run the session with each strategy; return nothing if the recorded runs are missing."""
    if not has_runs():
        print(f"context: skipped: {DIRECTORY} is not there", file=sys.stderr, flush=True)
        return []
    return figures_of(await run_all(list(STRATEGIES), WHOLE, compares_turns=True))


async def run_all(names: Sequence[str], size: Size, *, compares_turns: bool = False) -> dict[str, Outcome]:
    """Run one session with each strategy; on request also compare the CPU time of early and late turns."""
    outcomes: dict[str, Outcome] = {}
    limiter = trio.CapacityLimiter(AT_ONCE)

    async def play(name: str) -> None:
        order = ContextRunOrder(
            strategy=name, size=size, seed=SEED, compares_turns=compares_turns and name == OURS.name
        )
        async with limiter:
            outcomes[name] = await run_in_process(order)
            if order.compares_turns:
                # Measured within seconds of the late turns, because the speed of the machine changes over minutes.
                young = await run_in_process(msgspec.structs.replace(order, size=YOUNG))
                outcomes[name] = msgspec.structs.replace(outcomes[name], again=young.cpu)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(play, name)
    return {name: outcomes[name] for name in names}


def figures_of(outcomes: dict[str, Outcome]) -> list[Figure]:
    """Return the figures of all strategies together."""
    ours = outcomes[OURS.name]
    compared = [figure for outcome in outcomes.values() for figure in _compared(outcome, ours)]
    return [*_described(ours), *_goals(outcomes), *compared]


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return the goals of all layers, then a line for each strategy and for each violated expectation."""
    if others := [figure for figure in figures if ": " not in figure.name]:
        yield from rows(others)
        yield from aligned(figures, COLUMNS)
        yield f"  ({LEGEND})"
    yield from missed(figure for figure in figures if ": " in figure.name)


def notes_share(outcome: Outcome) -> float:
    """Cost of notes as a share of the cost of turns."""
    return float(outcome.helpers.get("notes", Decimal(0)) / (outcome.turns_else + outcome.rewrites))


def by_notes(outcome: Outcome) -> float:
    """Share of compactions that needed no model call."""
    ways = Counter(compaction.by for compaction in outcome.compactions)
    return ways["notes"] / max(1, ways.total())


def _described(ours: Outcome) -> Iterator[Figure]:
    yield Figure(name="window", value=WHOLE.window, unit="tokens", digits=0)
    yield Figure(name="turns", value=ours.turns, unit="", digits=0, goal=at_least(WHOLE.calls))
    yield Figure(name="tool results", value=ours.results / 1e6, unit="M tokens", goal=at_least(RESULTS / 1e6))
    yield Figure(name="words of the user", value=ours.words, unit="messages", digits=0)


def _goals(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    ours = outcomes[OURS.name]
    cheapest = min(outcomes[name].dollars for name in OTHERS if name in outcomes)
    yield Figure(
        name="all layers, of the cheapest other", value=float(ours.dollars / cheapest), unit="x", goal=at_most(1)
    )
    yield Figure(name="notes, of the turns", value=notes_share(ours), unit="x", digits=3, goal=at_most(NOTES_SHARE))
    added = float(ours.dollars / outcomes[WITHOUT_NOTES.name].dollars)
    yield Figure(name="all layers, of all but notes", value=added, unit="x", digits=3, goal=at_most(1 + NOTES_SHARE))
    yield Figure(name="updates of the notes", value=ours.updates, unit="", digits=0)
    yield Figure(name="compactions", value=len(ours.compactions), unit="", digits=0, goal=at_least(1))
    yield Figure(name="compactions by notes", value=by_notes(ours), unit="of all", goal=at_least(BY_NOTES))
    if times := [compaction.seconds * 1e3 for compaction in ours.compactions if compaction.by == "notes"]:
        yield Figure(name="a compaction by notes", value=median(times), unit="ms", goal=at_most(COMPACTION_MS))
    if ours.again:
        yield from _turns(ours)


def _turns(ours: Outcome) -> Iterator[Figure]:
    yield Figure(name="a late turn", value=ours.late * 1e3, unit="ms CPU")
    yield Figure(name="an early one, minutes before", value=ours.early * 1e3, unit="ms CPU")
    yield Figure(name="an early one, right after", value=ours.early_again * 1e3, unit="ms CPU")
    growth = ours.late / ours.early_again
    yield Figure(name="a late turn, of an early one", value=growth, unit="x CPU", goal=at_most(GROWTH))


def _compared(outcome: Outcome, ours: Outcome) -> Iterator[Figure]:
    name = outcome.strategy
    is_ours = name == OURS.name
    none = at_most(0) if is_ours else None
    ways = Counter(compaction.by for compaction in outcome.compactions)
    helpers = outcome.helpers
    yield Figure(name=f"{name}: turns", value=outcome.turns, unit="", digits=0)
    yield Figure(name=f"{name}: dollars", value=float(outcome.dollars), unit="$")
    yield Figure(name=f"{name}: turns $", value=float(outcome.turns_else), unit="$")
    yield Figure(name=f"{name}: rewrites $", value=float(outcome.rewrites), unit="$")
    yield Figure(name=f"{name}: notes $", value=float(helpers.get("notes", 0)), unit="$")
    yield Figure(name=f"{name}: summaries $", value=float(helpers.get("compaction", 0)), unit="$")
    yield Figure(name=f"{name}: ratio", value=float(outcome.dollars / ours.dollars), unit="of all layers")
    yield Figure(name=f"{name}: largest", value=outcome.largest, unit="tokens", digits=0)
    yield Figure(name=f"{name}: cached", value=outcome.read / outcome.sent, unit="of sent", digits=3)
    yield Figure(name=f"{name}: epochs", value=outcome.epochs, unit="", digits=0)
    yield Figure(name=f"{name}: by notes", value=ways["notes"], unit="compactions", digits=0)
    yield Figure(name=f"{name}: by model", value=ways["summary"] + ways["chunks"], unit="compactions", digits=0)
    yield Figure(name=f"{name}: by rule", value=ways["rule"], unit="compactions", digits=0)
    yield Figure(name=f"{name}: breaks", value=len(outcome.breaks), unit="unexpected", digits=0, goal=none)
    yield Figure(name=f"{name}: expired", value=outcome.expired, unit="breaks", digits=0)
    yield Figure(name=f"{name}: refused", value=outcome.refused, unit="requests", digits=0)
    yield Figure(name=f"{name}: ended", value=len(outcome.ended), unit="runs", digits=0, goal=none)
    yield Figure(name=f"{name}: words lost", value=outcome.lost_words, unit="messages", digits=0, goal=none)
