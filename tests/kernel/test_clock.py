import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.clock import CLOCK_FILE_VARIABLE, Clock


def test_clocks_on_one_file_move_together(tmp_path: Path) -> None:
    first, second = Clock(file=tmp_path / "clock"), Clock(file=tmp_path / "clock")
    first.advance(3600)
    assert second.offset == 3600
    second.advance(-600)
    assert first.offset == 3000
    assert abs(first.now() - time.time() - 3000) < 5


def test_concurrent_moves_add_up(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from coterie.clock import Clock\n"
    code += "for _ in range(20): Clock(file=Path(sys.argv[1])).advance(1)"
    movers = [subprocess.Popen([sys.executable, "-P", "-c", code, str(tmp_path / "clock")]) for _ in range(3)]
    assert [mover.wait(30) for mover in movers] == [0, 0, 0]
    assert Clock(file=tmp_path / "clock").offset == 60


def test_clock_file_is_taken_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLOCK_FILE_VARIABLE, str(tmp_path / "clock"))
    Clock(file=tmp_path / "clock").advance(60)
    assert Clock.from_environment().offset == 60
