"""Comparison with other frameworks: one that cannot be measured is reported, and the figures match the work done."""

from pathlib import Path

import pytest

from benchmarks.peer_environments import Environment, Framework, NotMeasured, installed
from benchmarks.peers import CONVERSATION, OURS, conversation_figures, open_work, table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

TURNS = 30


def _framework(*packages: str) -> Framework:
    return Framework(name="none", packages=packages, caches=False)


def _ready(directory: Path) -> list[Path]:
    return list(directory.rglob(".ready"))


async def test_a_framework_that_cannot_be_installed_says_why_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NotMeasured, match=r"none: not measured: .*nowhere"):
        await installed(_framework("./nowhere"))
    assert "installing ./nowhere into" in capsys.readouterr().err
    assert not _ready(tmp_path)


async def test_a_framework_that_fails_at_work_says_why(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text("#!/bin/sh\necho trace >&2\necho 'TypeError: no such argument' >&2\nexit 1\n")
    python.chmod(0o755)
    environment = Environment(framework=_framework("x"), directory=tmp_path, version="1")
    with pytest.raises(NotMeasured, match="none: not measured: TypeError: no such argument"):
        await environment.run({})


async def test_our_conversation_is_measured_and_billed_turn_by_turn() -> None:
    async with open_work(TURNS, 1_000) as work:
        used, dollars = await work.by_us()
    figures = conversation_figures(OURS, TURNS, used, dollars)
    assert len(used["marks"]) == TURNS - 1
    assert used["marks"] == sorted(used["marks"])
    assert dollars > 0
    lines = list(table(figures))
    assert lines[0].strip() == CONVERSATION
    assert lines[2].split()[0] == OURS
    with pytest.raises(NotMeasured, match="29 times in 40 turns"):
        conversation_figures(OURS, 40, used, dollars)
