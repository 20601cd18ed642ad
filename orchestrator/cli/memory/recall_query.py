"""`coterie memory recall`: prints memories that match a query, chosen by a model or by a keyword search."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import attrs
import click
import msgspec
import trio

from coterie.agents.loop.model.catalog import has_model_key
from coterie.memory.errors import MemoryRefused
from coterie.memory.recall.bm25 import Bm25Ranker, RankedMemory
from coterie.memory.store.memory_entry import parse_entry
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.scope_options import json_option, open_store, scope_options
from coterie.orchestrator.cli.output import UsageRefused, one_line, print_json, sanitize
from coterie.orchestrator.cli.shared_options import script_option
from coterie.orchestrator.settings.settings_loader import load_settings

HEAD_BYTES = 65_536
"""Number of bytes at the start of a memory file that are read for its description."""
PATIENCE = 2.0
"""Seconds of an index update after which the command prints that it updates the search index."""


@attrs.define(eq=False)
class _SlowNotice:
    """Printer of one notice on standard error if an update of the search index takes longer than `PATIENCE`."""

    _began: float = attrs.field(factory=time.monotonic)
    _is_shown: bool = False

    def between(self) -> None:
        """Print the notice if `PATIENCE` seconds have passed and it is not printed yet; called during the update."""
        if not self._is_shown and time.monotonic() - self._began > PATIENCE:
            self._is_shown = True
            click.echo("updating the index for new and changed memories", err=True)


class _QueryLine(msgspec.Struct):
    """One JSON line of a query file, with the key `query`; other keys are ignored."""

    query: str


@click.command()
@click.argument("query", required=False)
@click.option(
    "--k", "count", type=click.IntRange(1), default=5, show_default=True, help="Show at most this many memories."
)
@click.option(
    "--queries",
    type=click.File(encoding="utf-8", errors="replace"),
    metavar="FILE",
    help='Read queries from FILE instead of QUERY: one per line, as text or as {"query": "..."}; - is standard input.',
)
@click.option("--local", is_flag=True, help="Search by keywords, without a model and without cost.")
@script_option("no API key is needed")
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
    """Show the memories that match QUERY, best first, each with a score and its description.

    Give either QUERY or --queries. By default a model chooses the memories, as in a session (setting
    memory.recall.model), and its cost is printed; its scores show only the order. A keyword search is used instead with
    --local or if the model fails; without --script, also if there is no API key or the setting memory.recall.by is
    "local". With --json, prints one line of JSON for each query. Exits 0 also if nothing matches, 1 after a file error.
    """
    if (query is None) == (queries is None):
        raise click.UsageError("give either QUERY or --queries FILE, and not both")
    asked = _read(queries) if queries is not None else [query or ""]
    settings = load_settings(Path.cwd(), {}, os.environ).memory.recall
    with open_store(place) as store, closing(Bm25Ranker.open(place.directory)) as ranker:
        recalling = _RecallPrinter(store, ranker, count, is_json=is_json, has_heading=queries is not None)
        for reason in _skipped_lines(place.directory):
            click.echo(sanitize(reason), err=True)
        if local or (script is None and (settings.by == "local" or not has_model_key())):
            for one in asked:
                recalling.show(one, recalling.rank(one))
            return
        # Imported here, so that the local ranker does not wait for the SDK.
        from coterie.orchestrator.cli.memory.model_recall import recall_by_model  # noqa: PLC0415
        from coterie.orchestrator.processes.api_server_process import ApiServerFailed  # noqa: PLC0415

        settings = attrs.evolve(settings, most=count)
        try:
            trio.run(recall_by_model, place.directory, settings, script, asked, recalling.take)
        except ApiServerFailed as exc:
            raise UsageRefused(sanitize(str(exc))) from exc


@attrs.define(eq=False)
class _RecallPrinter:
    """Printer of the memories found for each query, as text or JSON; it also runs the keyword search."""

    _store: MemoryStore
    _ranker: Bm25Ranker
    _count: int
    is_json: bool
    has_heading: bool
    _is_fresh: bool = False

    def rank(self, query: str) -> list[RankedMemory]:
        """Return the memories that match *query* by keywords, best first; the first call updates the search index."""
        if not self._is_fresh:
            self._ranker.refresh(_SlowNotice().between)
            self._is_fresh = True
        return self._ranker.rank(query, self._count)

    def show(self, query: str, found: list[RankedMemory]) -> None:
        """Print the memories *found* for *query*, best first, as text or as one line of JSON."""
        if self.is_json:
            memories = [{"path": ranked.path, "score": ranked.score} for ranked in found]
            print_json({"query": query, "memories": memories})
            return
        if self.has_heading:
            click.echo(click.style(one_line(query), bold=True))
        if not found:
            click.echo("no memory matches the query; try other words", err=True)
        for ranked in found:
            about = one_line(_about(self._store, ranked.path))
            click.echo(f"{ranked.score:8.3f}  {sanitize(ranked.path)}  {about}")

    def take(self, query: str, found: list[RankedMemory] | None, why: str) -> None:
        """Print the model's choice and *why* (model, cost); if *found* is None, the reason and a keyword search."""
        if found is None:
            click.echo(sanitize(f"the model could not choose: {why}; using the local ranker"), err=True)
        elif why and not self.is_json:
            click.echo(f"the memories were chosen by {why}", err=True)
        self.show(query, self.rank(query) if found is None else found)


def _read(lines: Iterable[str]) -> Iterator[str]:
    """Yield the query of each line that is not empty: plain text, or a JSON object with the key `query`."""
    for line in lines:
        text = line.strip()
        if text.startswith("{"):
            with suppress(msgspec.DecodeError):  # a query may look like JSON
                text = msgspec.json.decode(text, type=_QueryLine).query
        if text:
            yield text


def _skipped_lines(directory: Path) -> Iterator[str]:
    """Yield a line with the reason for each memory file or directory that the search skips: links, unreadable ones."""
    errors: list[OSError] = []
    for here, below, names in os.walk(directory, onerror=errors.append):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = os.path.join(here, name)  # noqa: PTH118 - a `Path` for each of 50,000 files takes a second
            if not name.endswith(".md") or name.startswith("."):
                continue
            if os.path.islink(path):  # noqa: PTH114 - the same
                yield f"{path} was skipped: it is a link"
            elif not os.access(path, os.R_OK):
                yield f"{path} was skipped: it cannot be read"
    is_new = not directory.exists()  # a project without memories
    yield from (f"{exc.filename} was skipped: {exc.strerror}" for exc in errors if not is_new)


def _about(store: MemoryStore, path: str) -> str:
    try:
        return parse_entry(store.read(path, limit=HEAD_BYTES) or b"", path).description
    except (OSError, MemoryRefused):
        return ""
