"""pytest plugin: `--coterie-scenarios DIR` runs the scenario files below DIR as tests; a fixture runs a single one.

A scenario is a YAML file that tests a team of agents with scripted model replies. pytest imports this module in every
project that has Coterie installed, so the module imports other parts of Coterie only when a scenario is loaded or run.
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
    """Type of the function that the pytest fixture `scenario` passes to a test: it runs one scenario."""

    def __call__(
        self, name: str | Path, *, seed: int | None = None, faults: str | Path | None = None
    ) -> "ScenarioOutcome":
        """Run the scenario *name* and return its outcome, passed or failed.

        *name* is a file next to the test or in a directory of `--coterie-scenarios`, or the name of a scenario that
        Coterie ships. *seed* [default: `--coterie-seed`] makes random choices repeatable. *faults* is another file with
        faults to inject. Blocks until all processes have ended. A missing or invalid file fails the test with errors.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--coterie-scenarios` and `--coterie-seed` to the command line of pytest."""
    group = parser.getgroup("coterie", "scripted teams of agents")
    group.addoption(
        "--coterie-scenarios",
        action="append",
        default=[],
        metavar="DIR",
        help="Run each scenario file (*.yaml, a test of a team of agents) below DIR as a test; may be repeated.",
    )
    group.addoption("--coterie-seed", type=int, default=0, metavar="N", help="Random seed of scenarios.  [default: 0]")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `coterie_scenario`; collect the directories of `--coterie-scenarios`, which must exist."""
    config.addinivalue_line("markers", f"{MARK}: test that runs a scenario file of --coterie-scenarios")
    for directory in _directories(config):
        if not directory.is_dir():
            raise pytest.UsageError(f"--coterie-scenarios: {directory} is not a directory; correct the path")
        given = [_absolute(config, arg.partition("::")[0]) for arg in config.args]
        if not any(directory.is_relative_to(path) for path in given):
            config.args.append(str(directory))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Return a collector for a YAML file below a directory of `--coterie-scenarios`; None for any other file."""
    directories = _directories(parent.config)
    if file_path.suffix != SUFFIX or not any(file_path.is_relative_to(each) for each in directories):
        return None
    file: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return file


class ScenarioFile(pytest.File):
    """pytest collector of one YAML file below a directory of `--coterie-scenarios`."""

    def collect(self) -> Iterator["ScenarioItem"]:
        """Yield one test for a scenario, none for a file of model replies only. Raises `CollectError` if invalid."""
        from coterie.scenarios.testing import ScenarioUnusable, read_name  # noqa: PLC0415 - see above

        try:
            name = read_name(self.path)
        except ScenarioUnusable as exc:
            raise self.CollectError(str(exc)) from exc
        if name is not None:
            yield ScenarioItem.from_parent(self, name=name)


class ScenarioItem(pytest.Item):
    """pytest test that runs one scenario file, and fails if an expectation of the scenario is not met."""

    def __init__(self, name: str, parent: ScenarioFile) -> None:
        super().__init__(name, parent)
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Run the scenario with the seed of `--coterie-seed`; raise `ScenarioFailed` if an expectation is not met."""
        from coterie.scenarios.testing import ScenarioFailed, run_file  # noqa: PLC0415 - see above

        outcome = run_file(self.path, self.config.getoption("--coterie-seed"))
        if not outcome.passed:
            raise ScenarioFailed(outcome)

    def repr_failure(
        self, excinfo: "ExceptionInfo[BaseException]", style: "TracebackStyle | None" = None
    ) -> "str | TerminalRepr":
        """Return the failed expectations or file errors, each with its line; for any other exception its traceback."""
        from coterie.scenarios.testing import ScenarioFailed, ScenarioUnusable  # noqa: PLC0415 - see above

        if isinstance(excinfo.value, ScenarioFailed | ScenarioUnusable):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of this test for pytest reports: file, line 0, and the title `scenario NAME`."""
        return self.path, 0, f"scenario {self.name}"


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> PlayScenario:
    """Return a function that runs a scenario (scripted test of a team of agents); see `PlayScenario` for arguments."""

    def run(name: str | Path, *, seed: int | None = None, faults: str | Path | None = None) -> "ScenarioOutcome":
        from coterie.scenarios.testing import ScenarioUnusable, find_file, run_file  # noqa: PLC0415 - see above

        directories = (request.path.parent, *_directories(request.config))
        chosen = request.config.getoption("--coterie-seed") if seed is None else seed
        try:
            return run_file(
                find_file(name, directories), chosen, faults=None if faults is None else find_file(faults, directories)
            )
        except ScenarioUnusable as exc:
            pytest.fail(str(exc), pytrace=False)

    return run


def _directories(config: pytest.Config) -> list[Path]:
    return [_absolute(config, given) for given in config.getoption("--coterie-scenarios")]


def _absolute(config: pytest.Config, path: str) -> Path:
    return Path(config.invocation_params.dir, path).resolve()
