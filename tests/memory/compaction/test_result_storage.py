"""Layer 1: selection of results to store, and their previews."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.files import SeededFaults, file_faults
from coterie.memory.compaction.result_storage import (
    LongResult,
    result_file_name,
    select_results,
    store_results,
    truncate_text,
)
from coterie.memory.layer_settings import ResultSettings

LIMITS = ResultSettings()


def result(id_: str, size: int, cap: int | None = 50_000) -> LongResult:
    return LongResult(id=id_, text="x" * size, cap=cap)


@pytest.mark.parametrize(
    ("results", "stored"),
    [
        pytest.param([("a", 50_000), ("b", 50_001), ("c", 30_001, 30_000)], ["b", "c"], id="over the cap"),
        pytest.param([("a", 190_000, None), ("b", 40_000), ("c", 30_000)], ["b", "c"], id="without cap"),
        pytest.param([(str(n), 40_000 + n) for n in range(6)], ["5", "4"], id="largest first"),
        pytest.param([("big", 300_000, None), ("small", 1_900)], [], id="shorter than its preview"),
    ],
)
def test_long_results_are_stored(results: list[tuple[str, int]], stored: list[str]) -> None:
    assert [each.id for each in select_results([result(*facts) for facts in results], LIMITS)] == stored


@given(st.lists(st.tuples(st.integers(0, 120_000), st.sampled_from([None, 20_000, 30_000, 50_000])), max_size=12))
def test_remaining_results_fit_unless_they_have_no_cap(sizes: list[tuple[int, int | None]]) -> None:
    results = [result(str(n), size, cap) for n, (size, cap) in enumerate(sizes)]
    stored = {each.id for each in select_results(results, LIMITS)}
    left = [each for each in results if each.id not in stored]
    assert all(each.cap is None or len(each.text) <= each.cap for each in left)
    assert not any(each.cap is None for each in results if each.id in stored)
    total = sum(len(each.text) for each in left) + LIMITS.preview * len(stored)
    shrinkable = [each for each in left if each.cap is not None and len(each.text) > LIMITS.preview]
    assert total <= LIMITS.total or not shrinkable


def test_stored_file_is_complete_and_block_shows_its_beginning(tmp_path: Path) -> None:
    text = "".join(f"line {n} é\n" for n in range(9_000))
    path, shown = store_results([LongResult(id="toolu_1", text=text, cap=1)], tmp_path / "new", LIMITS)["toolu_1"]
    assert path == tmp_path / "new/toolu_1.txt"
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(part in shown for part in (f"{len(text):,} characters", str(path), "line 0 é\nline 1 é\n"))
    assert len(shown.encode()) < 2_000 + 300
    assert shown.endswith("\n</persisted-output>")


@given(st.text(), st.integers(0, 60))
def test_truncated_text_is_a_prefix_that_ends_at_a_line_end(text: str, size: int) -> None:
    start = truncate_text(text, size)
    clean = text.encode("utf-8", "replace").decode()
    assert clean.startswith(start)
    assert len(start.encode()) <= size
    if len(start) < len(clean) and "\n" in clean.encode()[:size].decode("utf-8", "ignore"):
        assert clean[len(start)] == "\n"


@pytest.mark.parametrize("id_", ["../../etc/passwd", "a/b", "", "x" * 300, ".", "a\0b", "\\ud800"])
def test_result_id_cannot_escape_the_directory(tmp_path: Path, id_: str) -> None:
    name = result_file_name(id_)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert len(name) == 36


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    with file_faults(SeededFaults(seed=1, full=1.0)), pytest.raises(OSError, match="No space"):
        store_results([result("a", 60_000)], tmp_path, LIMITS)
    assert list(tmp_path.iterdir()) == []
