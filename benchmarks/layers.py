"""Savings of the first two context layers in a long session, and how often each of their mechanisms fires.

One session of recorded runs is run once with each setup of layers: the same texts, calls and pauses, claude-opus-5-5
with thinking, the strict embedded server. Tokens and dollars are computed by the server. The API clears as in a window
that the session exceeds without layer 2; no run stops there, so that all do the same work.
"""

import sys
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.figures import Figure, aligned, at_least, at_most, missed, rows
from benchmarks.long_session import SHORT, LongSession, build_session
from benchmarks.recorded_runs import DIRECTORY, has_runs
from benchmarks.sample_history import MODEL
from benchmarks.session_run import MECHANISMS, SessionOutcome, Setup, run_session
from coterie.agents.layers.layer2_clearing import api_trigger
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.tools.tool import RESULT_CAP
from coterie.memory.layer_settings import ClearingSettings, LayersSettings, ResultSettings

CALLS = 330
SEED = 2
COMPACT_WINDOW = 140_000

BASELINE = "none"
FOLLOWED, UNFOLLOWED = "1 + 2c", "1 + 2c, results sent again"
PROVES = {"1": "stored", "1 + 2a": "time", "1 + 2b": "cache", FOLLOWED: "api"}
"""Setup -> mechanism that must fire in it. With several active, the cheaper ones may leave nothing to the others."""
MECHANISM_COLUMNS = ("stored", "by time", "by cache", "by API")
COLUMNS = ("calls", *MECHANISM_COLUMNS, "largest", "sent", "cached", "dollars", "ratio", "breaks", "expired", "again")
LEGEND = (
    "of each mechanism: times it fired, results and tokens that left; largest and sent: prompts in tokens; breaks: of "
    "the cache, unexpected or expired; again: the API cleared in two calls running"
)


def setups(compact_window: int) -> list[Setup]:
    """Setups of layers, each compared with the first."""

    def setup(name: str, *, stores: bool = True, mechanisms: str = "", follows_api: bool = True) -> Setup:
        layers = LayersSettings(
            results=ResultSettings(enabled=stores),
            clearing=ClearingSettings(by_time="a" in mechanisms, by_cache="b" in mechanisms, by_api="c" in mechanisms),
        )
        return Setup(name=name, layers=layers, compact_window=compact_window, follows_api=follows_api)

    return [
        setup(BASELINE, stores=False),
        setup("1"),
        setup("1 + 2a", mechanisms="a"),
        setup("1 + 2b", mechanisms="b"),
        setup(FOLLOWED, mechanisms="c"),
        setup("1 + 2a + 2b + 2c", mechanisms="abc"),
        setup(UNFOLLOWED, mechanisms="c", follows_api=False),
    ]


async def measure() -> list[Figure]:
    """Run the session with each setup; return nothing if the recorded runs are missing."""
    if not has_runs():
        _progress(f"skipped: {DIRECTORY} is not there")
        return []
    session = build_session(CALLS, SEED)
    played: list[SessionOutcome] = []
    for setup in setups(COMPACT_WINDOW):
        _progress(f"{setup.name} ...")
        played.append(await run_session(session, setup))
    compared = [figure for each in played for figure in _compared(each, played[0])]
    return [*_described(session, played[0]), *compared, _following(played)]


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return a line for each setup, and for each violated expectation."""
    if others := [figure for figure in figures if ": " not in figure.name]:
        yield from rows(others)
        yield from aligned(figures, COLUMNS)
        yield f"  ({LEGEND})"
    for figure in figures:
        if figure.unit == "times" and not figure.value:
            yield f"  NEVER FIRED  {figure.name.removesuffix(', fired')}"
    yield from missed(figures)


def _described(session: LongSession, played: SessionOutcome) -> Iterator[Figure]:
    sizes = played.result_sizes
    window = Thresholds.for_window(COMPACT_WINDOW, known_models().get(MODEL).max_output)
    yield Figure(name="window by which the API clears", value=COMPACT_WINDOW, unit="tokens", digits=0)
    yield Figure(name="compaction would come at", value=window.compact, unit="tokens", digits=0)
    yield Figure(name="the API clears at", value=api_trigger(window), unit="tokens", digits=0)
    yield Figure(name="words of the user", value=len(session.exchanges), unit="messages", digits=0)
    yield Figure(name="pauses over five minutes", value=sum(p > max(SHORT) for p in session.pauses), unit="", digits=0)
    yield Figure(name="tool results", value=len(sizes), unit="", digits=0)
    yield Figure(name="a result, the median", value=median(sizes), unit="characters", digits=0)
    yield Figure(name="a result, the 95th of 100", value=sizes[len(sizes) * 95 // 100], unit="characters", digits=0)
    yield Figure(name="a result, the longest", value=sizes[-1], unit="characters", digits=0)
    over = sum(size > RESULT_CAP for size in sizes)
    yield Figure(name=f"results over {RESULT_CAP:,} characters", value=over, unit="", digits=0, goal=at_least(1))
    yield Figure(name="history without layers", value=played.history / 1e3, unit="KB", digits=0)


def _compared(played: SessionOutcome, baseline: SessionOutcome) -> Iterator[Figure]:
    name = played.setup.name
    yield Figure(name=f"{name}: calls", value=len(played.requests), unit="calls", digits=0)
    for mechanism, column in zip(MECHANISMS, MECHANISM_COLUMNS, strict=True):
        if mechanism in played.setup.mechanisms:
            fired = played.fired(mechanism)
            goal = at_least(1) if PROVES.get(name) == mechanism else None
            yield Figure(name=f"{name}: {column}, fired", value=fired.times, unit="times", digits=0, goal=goal)
            yield Figure(name=f"{name}: {column}, results", value=fired.results, unit="results", digits=0)
            yield Figure(name=f"{name}: {column}, tokens", value=fired.tokens, unit="tokens", digits=0)
    yield Figure(name=f"{name}: largest", value=played.largest_prompt, unit="tokens", digits=0)
    yield Figure(name=f"{name}: sent", value=played.tokens_sent, unit="tokens", digits=0)
    yield Figure(name=f"{name}: cached", value=played.cache_share, unit="of sent", digits=3)
    yield Figure(name=f"{name}: dollars", value=float(played.dollars), unit="$")
    yield Figure(name=f"{name}: ratio", value=float(played.dollars / baseline.dollars), unit="of none")
    unexpected = len(played.breaks(is_expired=False))
    yield Figure(name=f"{name}: breaks", value=unexpected, unit="unexpected", digits=0, goal=at_most(0))
    yield Figure(name=f"{name}: expired", value=len(played.breaks(is_expired=True)), unit="breaks", digits=0)
    if played.setup.layers.clearing.by_api:
        goal = at_most(0) if played.setup.follows_api else None
        yield Figure(name=f"{name}: again", value=played.repeats, unit="calls", digits=0, goal=goal)


def _following(played: Sequence[SessionOutcome]) -> Figure:
    """True if leaving out content that the API cleared pays, although it writes the rest to the cache again."""
    dollars = {each.setup.name: each.dollars for each in played}
    ratio = float(dollars[FOLLOWED] / dollars[UNFOLLOWED])
    return Figure(name="2c, of the price without leaving results out", value=ratio, unit="x", goal=at_most(1))


def _progress(line: str) -> None:
    print(f"layers: {line}", file=sys.stderr, flush=True)
