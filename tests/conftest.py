"""Fixtures and rules for all tests: no child process may remain, and a run is repeatable."""

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from coterie.clock import Clock
from coterie.session_directory import SessionDirectory
from tests import warm_start
from tests.descendants import descendants
from tests.examples import DEFAULT, EXPLORING, examples

# Every run uses the same examples, so only a change of the code changes the result; `make soak` searches for new ones.
settings.register_profile("coterie", examples(DEFAULT), derandomize=not EXPLORING)
settings.load_profile("coterie")

# Hooks of the user must not run in tests.
os.environ["CLAUDE_CONFIG_DIR"] = os.devnull


def pytest_configure() -> None:
    """Let SIGINT interrupt, here and in the children of tests, if it is ignored.

    A shell without job control starts `make test &` with SIGINT ignored, and every child inherits that. The workers
    of pytest-xdist run this hook too.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    warm_start.install()


def pytest_unconfigure() -> None:
    """End the warm process that programs were forked from."""
    warm_start.uninstall()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, because a long test that starts last leaves the other workers idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Exclude modules and items, which live as long as the run, from collections: each would visit half a million."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Keep the reason of a trio test that skips itself; pytest-trio raises a new skip without the reason."""
    try:
        yield
    except pytest.skip.Exception as skipped:
        group = skipped.__context__
        if skipped.msg or not isinstance(group, BaseExceptionGroup):
            raise
        raise next(_leaves(group)) from None


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for exception in group.exceptions:
        if isinstance(exception, BaseExceptionGroup):
            yield from _leaves(exception)
        else:
            yield exception


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the reasons of skipped tests, and the values that tests gave to `record_property("counted", ...)`."""
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason.removeprefix('Skipped: ')}")
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):
                if name == "counted":
                    terminalreporter.write_line(str(value))


@pytest.fixture(autouse=True)
def cold_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start programs with a new interpreter in tests marked `cold_start`."""
    if request.node.get_closest_marker("cold_start") is None:
        yield
        return
    with warm_start.cold_start():
        yield


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    """Fail a test that leaves child processes behind."""
    before = descendants()
    yield
    left = {child for child in descendants() - before if child.pid != warm_start.warm_pid()}
    assert not left, f"left behind: {', '.join(map(str, left))}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """COTERIE_HOME of the test; the directory does not exist yet."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def session(home: Path, tmp_path: Path) -> SessionDirectory:
    return SessionDirectory.create(tmp_path, Clock(), task="t", model="m")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """XDG_RUNTIME_DIR of the test, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="coterie-") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory)
