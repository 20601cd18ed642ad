"""`coterie memory recall`: memories that match a query, by a model or by the local ranker."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import attrs
import click
import msgspec
import trio

from coterie.memory.errors import MemoryRefused
from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.bm25 import Bm25Ranker, RankedMemory
from coterie.memory.store.memory_entry import parse_entry
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.scope_options import json_option, open_store, print_json, scope_options
from coterie.orchestrator.cli.model_access import has_key
from coterie.orchestrator.cli.output import UsageRefused, one_line, open_output, sanitize
from coterie.orchestrator.settings.settings_loader import load_settings

HEAD_BYTES = 65_536
"""Of a memory, in which its description stands."""
PATIENCE = 2.0
"""Seconds after which whoever waits is told for what."""
SHOWN = 100
"""Characters of a query, or of a description, in one line."""


@attrs.define(eq=False)
class _SlowNotice:
    """Says once why it takes so long."""

    _began: float = attrs.field(factory=time.monotonic)
    _is_shown: bool = False

    def between(self) -> None:
        """To be called now and then."""
        if not self._is_shown and time.monotonic() - self._began > PATIENCE:
            self._is_shown = True
            click.echo("memories that are new or have changed are being indexed", err=True)


class _QueryLine(msgspec.Struct):
    """A line of a file of queries; whatever else it holds is passed over."""

    query: str


@click.command()
@click.argument("query", required=False)
@click.option("--k", "count", type=click.IntRange(1), default=5, show_default=True, help="Memories for each query.")
@click.option(
    "--queries",
    type=click.File(encoding="utf-8", errors="replace"),
    metavar="FILE",
    help='One query on each line, or JSON with a "query"; - is standard input.',
)
@click.option("--local", is_flag=True, help="Let the local ranker choose, also where there is a model.")
@click.option("--script", type=click.Path(path_type=Path), help="Play the model from FILE.")
@scope_options
@json_option
def recall(
    *,
    query: str | None,
    count: int,
    queries: Iterable[str] | None,
    local: bool,
    script: Path | None,
    place: MemoryScope,
    is_json: bool,
) -> None:
    """Show which memories fit QUERY best, with their scores.

    As in a session a model chooses, the one that memory.recall.model in docs/settings.md names; the local ranker does
    with --local, where memory.recall.by says so, and where there is no key. Scores of a model's choice say no more than
    which comes first.

    With --json, one line for each query.
    """
    if (query is None) == (queries is None):
        raise click.UsageError("give a QUERY, or --queries FILE")
    asked = _read(queries) if queries is not None else [query or ""]
    settings = load_settings(Path.cwd(), {}, os.environ).memory.recall
    with open_output(), open_store(place) as store, closing(Bm25Ranker.open(place.directory)) as ranker:
        recalling = _RecallPrinter(store, ranker, count, is_json=is_json, has_heading=queries is not None)
        for reason in _skipped_lines(place.directory):
            click.echo(sanitize(reason), err=True)
        if local or (script is None and (settings.by == "local" or not has_key())):
            for one in asked:
                recalling.show(one, recalling.rank(one))
        else:
            _ask_model(place.directory, asked, attrs.evolve(settings, most=count), script, recalling)


@attrs.define(eq=False)
class _RecallPrinter:
    """What is recalled, as it is shown."""

    _store: MemoryStore
    _ranker: Bm25Ranker
    _count: int
    is_json: bool
    has_heading: bool
    _is_fresh: bool = False

    def rank(self, query: str) -> list[RankedMemory]:
        """What the local ranker finds."""
        if not self._is_fresh:
            self._ranker.refresh(_SlowNotice().between)
            self._is_fresh = True
        return self._ranker.rank(query, self._count)

    def show(self, query: str, found: list[RankedMemory]) -> None:
        """Print what was found."""
        if self.is_json:
            memories = [{"path": ranked.path, "score": ranked.score} for ranked in found]
            print_json({"query": query, "memories": memories})
        else:
            _print(self._store, query, found, has_heading=self.has_heading)

    def take(self, query: str, found: list[RankedMemory] | None, why: str) -> None:
        """Print what a model chose, and on standard error what it cost; else what the local ranker finds, and why."""
        if found is None:
            click.echo(sanitize(f"the model could not choose: {why}; the local ranker does"), err=True)
        elif why and not self.is_json:
            click.echo(f"chosen by {why}", err=True)
        self.show(query, self.rank(query) if found is None else found)


def _ask_model(
    directory: Path, queries: Iterable[str], settings: RecallSettings, script: Path | None, recalling: _RecallPrinter
) -> None:
    # The local ranker should not wait for the SDK.
    from coterie.orchestrator.cli.memory.model_recall import ModelRecall  # noqa: PLC0415
    from coterie.orchestrator.processes.api_server_process import ApiServerFailed  # noqa: PLC0415

    by_model = ModelRecall(directory=directory, settings=settings, script=script)
    try:
        trio.run(by_model.ask, queries, recalling.take)
    except ApiServerFailed as exc:
        raise UsageRefused(sanitize(str(exc))) from exc


def _read(lines: Iterable[str]) -> Iterator[str]:
    """The queries in *lines*; empty ones are passed over."""
    for line in lines:
        text = line.strip()
        if text:
            yield _query(text)


def _query(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=_QueryLine).query if text.startswith("{") else text
    except msgspec.DecodeError:
        return text  # somebody may ask about JSON


def _skipped_lines(directory: Path) -> Iterator[str]:
    """What the ranker cannot look at, and why; each in one line."""
    errors: list[OSError] = []
    for here, below, names in os.walk(directory, onerror=errors.append):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = os.path.join(here, name)  # noqa: PTH118 - a `Path` for each of 50,000 files takes a second
            if not name.endswith(".md") or name.startswith("."):
                continue
            if os.path.islink(path):  # noqa: PTH114 - the same
                yield f"{path} was passed over: it is a link"
            elif not os.access(path, os.R_OK):
                yield f"{path} was passed over: it cannot be read"
    yield from (f"{exc.filename} was passed over: {exc.strerror}" for exc in errors)


def _print(store: MemoryStore, query: str, found: list[RankedMemory], *, has_heading: bool) -> None:
    if has_heading:
        click.echo(click.style(one_line(query, SHOWN), bold=True))
    if not found:
        click.echo("no memory fits", err=True)
    for ranked in found:
        click.echo(f"{ranked.score:8.3f}  {sanitize(ranked.path)}  {one_line(_about(store, ranked.path), SHOWN)}")


def _about(store: MemoryStore, path: str) -> str:
    try:
        return parse_entry(store.read(path, limit=HEAD_BYTES) or b"", path).description
    except (OSError, MemoryRefused):
        return ""
