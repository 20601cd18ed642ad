"""Tests of the reasons why a sandbox is not available."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import coterie
from coterie.agents.sandbox import backends, launch
from coterie.agents.sandbox.backends import available_backends, unavailable_reason
from tests.agents.sandbox.sandboxed_workspace import needs

pytestmark = pytest.mark.slow

ASK = "from coterie.agents.sandbox.backends import unavailable_reason as obstacle; print(obstacle({way!r}))"


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = unavailable_reason("bubblewrap")
    assert reason is not None
    assert reason.startswith("the program bwrap is not installed; install the package bubblewrap")
    if unavailable_reason("landlock") is None:
        assert reason.endswith('or set sandbox = "landlock", which this kernel supports')
    assert set(available_backends()) == {"bubblewrap", "landlock"}


def test_kernel_without_namespaces_is_reported() -> None:
    """Landlock denies mounting, which Bubblewrap needs."""
    needs("landlock")
    needs("bubblewrap")
    said = _output_of(backends.landlock_command(_python("bubblewrap"), {Path("/"): "write"}, network=False))
    assert said.startswith("bwrap: ")
    assert "unprivileged user namespaces must be allowed" in said


def test_kernel_without_landlock_is_reported() -> None:
    needs("bubblewrap")
    with tempfile.TemporaryFile() as filter_:
        # Load the system call number; fail with ENOSYS for Landlock, allow all others.
        code = (
            (0x20, 0, 0, 0),
            (0x15, 0, 1, launch.CREATE_RULESET),
            (0x06, 0, 0, 0x00050026),
            (0x06, 0, 0, 0x7FFF0000),
        )
        filter_.write(b"".join(_instruction(*line) for line in code))
        filter_.seek(0)
        number = filter_.fileno()
        held = [
            backends.find_bubblewrap() or "",
            "--dev-bind",
            "/",
            "/",
            "--seccomp",
            str(number),
            *_python("landlock"),
        ]
        said = _output_of(held, number)
    assert said == (
        "this kernel has no Landlock; version 3 (Linux 6.2) is required; "
        'install bubblewrap and set sandbox = "bubblewrap"'
    )


def _instruction(code: int, then: int, other: int, value: int) -> bytes:
    return code.to_bytes(2, "little") + bytes((then, other)) + value.to_bytes(4, "little")


def _python(way: str) -> list[str]:
    return [sys.executable, "-P", "-c", ASK.format(way=way)]


def _output_of(command: list[str], *descriptors: int) -> str:
    path = str(Path(coterie.__file__).parents[1])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        pass_fds=descriptors,
        env={**os.environ, "PYTHONPATH": path},
    )
    return done.stdout.strip()
