"""pytest plugin: `--coterie-scenarios DIR` runs each file, the fixture `scenario` runs one.

pytest loads this module in every run of every project that has Coterie installed, so nothing of ours is imported before
a scenario is wanted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from _pytest._code.code import ExceptionInfo, TerminalRepr, TracebackStyle

    from coterie.scenarios.testing import ScenarioOutcome


MARK = "coterie_scenario"
SUFFIX = ".yaml"


class PlayScenario(Protocol):
    """What the fixture `scenario` is."""

    def __call__(
        self, name: str | Path, *, seed: int | None = None, faults: str | Path | None = None
    ) -> "ScenarioOutcome":
        """Play the scenario *name*, and return what came of it, whether it passed or not.

        *name* is a file, next to the test or in a directory of `--coterie-scenarios`, or the name of a scenario that
        ships. *seed* is that of `--coterie-seed` if not given; the *faults* of another file happen too. Blocks until
        nothing of it is left. A file that cannot be used fails the test, with its lines.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the options."""
    group = parser.getgroup("coterie", "scripted teams of agents")
    group.addoption(
        "--coterie-scenarios",
        action="append",
        default=[],
        metavar="DIR",
        help="Play each scenario (*.yaml) below DIR as a test; may be given more than once.",
    )
    group.addoption(
        "--coterie-seed", type=int, default=0, metavar="N", help="The seed of every scenario; 0 if not given."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let the directories be collected, too."""
    config.addinivalue_line("markers", f"{MARK}: a scenario of --coterie-scenarios")
    for directory in _directories(config):
        if not directory.is_dir():
            raise pytest.UsageError(f"--coterie-scenarios: there is no directory {directory}")
        given = [_absolute(config, arg.partition("::")[0]) for arg in config.args]
        if not any(directory.is_relative_to(path) for path in given):
            config.args.append(str(directory))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """A file below one of the directories is a scenario."""
    directories = _directories(parent.config)
    if file_path.suffix != SUFFIX or not any(file_path.is_relative_to(each) for each in directories):
        return None
    file: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return file


class ScenarioFile(pytest.File):
    """One YAML file."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """The scenario in it; nothing for a script, which scenarios name. Raises `CollectError` with its lines."""
        from coterie.scenarios.testing import ScenarioUnusable, read_name  # noqa: PLC0415 - see above

        try:
            name = read_name(self.path)
        except ScenarioUnusable as exc:
            raise self.CollectError(str(exc)) from exc
        if name is not None:
            yield ScenarioItem.from_parent(self, name=name)


class ScenarioItem(pytest.Item):
    """One scenario; it fails if it did not go as its file wants it."""

    def __init__(self, name: str, parent: ScenarioFile) -> None:
        super().__init__(name, parent)
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Play it."""
        from coterie.scenarios.testing import ScenarioFailed, run_file  # noqa: PLC0415 - see above

        outcome = run_file(self.path, self.config.getoption("--coterie-seed"))
        if not outcome.passed:
            raise ScenarioFailed(outcome)

    def repr_failure(
        self, excinfo: "ExceptionInfo[BaseException]", style: "TracebackStyle | None" = None
    ) -> "str | TerminalRepr":
        """What was not as it must be, with lines of its file; no traceback of ours."""
        from coterie.scenarios.testing import ScenarioFailed, ScenarioUnusable  # noqa: PLC0415 - see above

        if isinstance(excinfo.value, ScenarioFailed | ScenarioUnusable):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it is, and what it is called."""
        return self.path, 0, f"scenario {self.name}"


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> PlayScenario:
    """Give a test what plays scenarios, see `PlayScenario`."""

    def play(name: str | Path, *, seed: int | None = None, faults: str | Path | None = None) -> "ScenarioOutcome":
        from coterie.scenarios.testing import ScenarioUnusable, find_file, run_file  # noqa: PLC0415 - see above

        places = (request.path.parent, *_directories(request.config))
        chosen = request.config.getoption("--coterie-seed") if seed is None else seed
        try:
            return run_file(
                find_file(name, places), chosen, faults=None if faults is None else find_file(faults, places)
            )
        except ScenarioUnusable as exc:
            pytest.fail(str(exc), pytrace=False)

    return play


def _directories(config: pytest.Config) -> list[Path]:
    return [_absolute(config, given) for given in config.getoption("--coterie-scenarios")]


def _absolute(config: pytest.Config, path: str) -> Path:
    return Path(config.invocation_params.dir, path).resolve()
