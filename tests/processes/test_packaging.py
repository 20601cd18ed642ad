"""The installed package: the wheel, and the wheel built from the sdist, run from another directory."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import coterie

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the sources for a build, because a build writes into them, and two may run concurrently."""
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(ROOT, tmp_path / "source", symlinks=True, ignore=unwanted))


@pytest.fixture(params=["wheel", pytest.param("wheel from sdist", marks=pytest.mark.soak)])
def wheel(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> Path:
    # Without an option `build` makes the sdist, and then the wheel from it.
    choice = ["--wheel"] if request.param == "wheel" else []
    command = [sys.executable, "-m", "build", "--no-isolation", *choice, "--outdir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    [path] = tmp_path.glob("*.whl")
    return path


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a command of a new environment with the wheel and the libraries of this one."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    python = str(home / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    [site] = home.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["COTERIE_HOME"] = str(tmp_path / "home")

    def run(command: str, *arguments: str) -> str:
        program = [str(home / "bin" / command), *arguments]
        done = subprocess.run(
            program,
            check=True,
            capture_output=True,
            text=True,
            cwd=elsewhere,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout

    return run


def test_an_installed_coterie_works_from_another_directory(installed: Callable[..., str], tmp_path: Path) -> None:
    assert installed("coterie", "--version") == f"coterie, version {coterie.__version__}\n"
    place = installed("python", "-c", "import coterie.scenarios.api_server.app as app; print(app.__file__)")
    assert place.startswith(str(tmp_path))
    plugins = "from importlib.metadata import entry_points as all; [one] = all(group='pytest11', name='coterie')"
    assert installed("python", "-c", f"{plugins}; print(one.load().__file__)").startswith(str(tmp_path))
    assert "coordinator" in installed("coterie", "scenario", "list")
    script = tmp_path / "script.yaml"
    script.write_text("default: [hello]")
    assert installed("coterie", "run", "Go.", "-p", "--script", str(script)) == "hello\n"
    announced = installed("coterie", "serve", "--port", "0", "--json", "--while-stdin-open", "--script", str(script))
    assert json.loads(announced)["url"].startswith("http://127.0.0.1:")
    assert installed("python", "-c", PAGE) == "8\n"


PAGE = """
from pathlib import Path
from coterie.orchestrator.report.collect import collect_report
from coterie.orchestrator.report.page import render_page
from coterie.session_directory import SessionDirectory
nothing = SessionDirectory(id="none", project=Path.cwd(), task="t", model="m", started=0.0)
print(render_page(collect_report(nothing, 0.0)).count(b"<section "))
"""
"""Writes a report of a session without files, because the assets of the page must be in the wheel."""
