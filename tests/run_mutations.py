"""Runner of the mutation table: breaks one documented promise at a time and checks that a test fails.

`mutations.toml` has the promises, a change of the product that breaks each, and the tests that ought to fail for it.
Run as `python -m tests.run_mutations`.
"""

import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from tests.mutation_tree import MutationTree, copied_tree

TABLE = Path(__file__).with_name("mutations.toml")
TIMEOUT = 300.0
"""Time limit for the tests of one entry, in seconds."""
_TESTS_FAILED, _INTERRUPTED = 1, 2
"""Exit codes of pytest; the second also means that a module cannot be imported."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)

Verdict = Literal["caught", "caught (timeout)", "SURVIVED", "broken"]


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Promise of the documentation, and a change of the code that breaks it."""

    name: str
    promise: str
    source: str
    """Document that contains the promise."""
    file: str
    old: str
    """Snippet that occurs once in *file*."""
    new: str
    tests: list[str]
    """Files, folders or ids of tests; at least one test must fail with the change."""

    def apply(self, text: str) -> str:
        """Return *text* with the change. Raises `ValueError` if the snippet does not occur exactly once."""
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has the old text {found} times")
        return text.replace(self.old, self.new)


class Outcome(msgspec.Struct, frozen=True):
    """Result of one entry."""

    name: str
    verdict: Verdict
    detail: str
    seconds: float

    def line(self) -> str:
        """Format the result as one line."""
        return f"{self.verdict:<16} {self.seconds:5.0f} s  {self.name}  {self.detail}".rstrip()


def load_mutations() -> list[Mutation]:
    """Load the table. Raises `msgspec.ValidationError` for an entry with a missing or unknown field."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"], list[Mutation])


def check_mutation(tree: MutationTree, mutation: Mutation, unmutated: Callable[[list[str]], str | None]) -> Outcome:
    """Run the tests of *mutation* with its change; *unmutated* returns why the tests fail without any change."""

    def outcome(verdict: Verdict, detail: str, seconds: float = 0) -> Outcome:
        return Outcome(mutation.name, verdict, detail, round(seconds, 1))

    try:
        text = mutation.apply((tree.root / mutation.file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return outcome("broken", str(error))
    if reason := unmutated(mutation.tests):
        return outcome("broken", f"without the change: {reason}")
    with tree.changed(mutation.file, text):
        run = tree.run_tests(mutation.tests, timeout=TIMEOUT)
    match run.exit_code:
        case None:
            return outcome("caught (timeout)", "", run.seconds)
        case 0:
            return outcome("SURVIVED", f"by {' '.join(mutation.tests)}", run.seconds)
        case code if code in {_TESTS_FAILED, _INTERRUPTED}:
            return outcome("caught", run.first_failure, run.seconds)
        case code:
            return outcome("broken", f"pytest ended with {code}: {run.first_failure}", run.seconds)


class _Baseline:
    """Runs each set of tests once without a change, and remembers the result."""

    def __init__(self, tree: MutationTree) -> None:
        self._tree = tree
        self._known: dict[tuple[str, ...], str | None] = {}

    def __call__(self, tests: list[str]) -> str | None:
        key = tuple(sorted(tests))
        if key not in self._known:
            run = self._tree.run_tests(tests, timeout=TIMEOUT)
            self._known[key] = None if run.exit_code == 0 else run.first_failure
            click.echo(f"unmutated: {run.seconds:5.0f} s  {' '.join(tests)}: {self._known[key] or 'passes'}")
        return self._known[key]


@click.command()
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this entry; may be repeated.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the outcomes to this file.")
@click.option("--baseline", is_flag=True, help="First see that the tests pass without the change.")
@click.option("--list", "list_only", is_flag=True, help="Print names and promises, and run nothing.")
def main(names: tuple[str, ...], json_file: Path | None, *, baseline: bool, list_only: bool) -> None:
    """Break each promise of mutations.toml and check that a test fails. Exits 1 if a mutation is not caught."""
    mutations = load_mutations()
    if unknown := set(names) - {mutation.name for mutation in mutations}:
        raise click.UsageError(f"no such entry: {', '.join(sorted(unknown))}")
    chosen = [mutation for mutation in mutations if not names or mutation.name in names]
    if list_only:
        for mutation in chosen:
            click.echo(f"{mutation.name}: {mutation.promise} ({mutation.source})")
        return
    for stop in SIGNALS:  # a shell starts what runs in the background with SIGINT ignored
        signal.signal(stop, _interrupt)
    outcomes: list[Outcome] = []
    with copied_tree() as tree:
        unmutated: Callable[[list[str]], str | None] = _Baseline(tree) if baseline else _assume_passing
        for number, mutation in enumerate(chosen, 1):
            outcomes.append(check_mutation(tree, mutation, unmutated))
            click.echo(f"{number:3}/{len(chosen)} {outcomes[-1].line()}")
            if json_file is not None:
                json_file.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes)) + b"\n")
    caught = sum(outcome.verdict.startswith("caught") for outcome in outcomes)
    click.echo(f"{caught} of {len(outcomes)} caught in {sum(outcome.seconds for outcome in outcomes):.0f} s")
    sys.exit(caught != len(outcomes))


def _assume_passing(tests: list[str]) -> str | None:
    del tests
    return None


def _interrupt(*_: Any) -> None:
    """Stop the run: kill its processes and remove its files; a second signal does not interrupt this."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
