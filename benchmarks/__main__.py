"""Command that runs the benchmarks in sequence and prints each figure with its goal."""

import importlib
import inspect
import json
import time
from collections.abc import Iterable
from typing import Any

import click
import trio

from benchmarks.figures import Figure, rows

# Benchmarks with much memory come last, so that the garbage collection of the others does not walk it.
NAMES = (
    "trace_path",
    "cache_lookup",
    "server_rate",
    "streams",
    "mail",
    "spawn",
    "wake",
    "scale",
    "peers",
    "bill",
    "client_growth",
    "client_cpu",
    "loop_cpu",
    "grep",
    "layers",
    "recall",
    "context",
)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(*, names: tuple[str, ...], as_json: bool) -> None:
    """Run the benchmarks in NAMES, or all. A missed goal is reported, but exits with 0: timings vary."""
    report: dict[str, Any] = {}
    for name in names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        began = time.perf_counter()
        figures: list[Figure] = trio.run(module.measure)
        report[name] = {"seconds": time.perf_counter() - began, "figures": [figure.to_mapping() for figure in figures]}
        if not as_json:
            # A benchmark with many figures formats them itself.
            _print(name, inspect.getdoc(module) or "", getattr(module, "table", rows)(figures))
    if as_json:
        click.echo(json.dumps(report))


def _print(name: str, doc: str, lines: Iterable[str]) -> None:
    click.echo(f"{name}: {doc.splitlines()[0]}")
    for row in lines:
        click.echo(row)
    click.echo()


if __name__ == "__main__":
    main()
