"""Session notes survive any edit of their file, stay within their limits, and are updated by growth, calls and cost."""

import errno
import os
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.files import file_faults
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.document import END_OF_KEPT, KEPT, NotesDocument
from coterie.memory.notes.notes_file import (
    LARGEST,
    begin_update,
    end_update,
    read_file,
    read_notes,
    tokens_of,
    trim_notes,
)
from coterie.memory.notes.notes_schedule import MOST_DOUBLINGS, NotesSchedule, UpdateThreshold
from coterie.memory.notes.template import Template, default_template
from tests.seeded_faults import SeededFaults

TEMPLATE = default_template()
HEADINGS = [section.heading for section in TEMPLATE.sections if section.heading]
HINTS = [hint for section in TEMPLATE.sections for hint in section.hint]
EMPTY = NotesDocument.parse("", TEMPLATE)


def filled(**bodies: str) -> str:
    """Return notes with these bodies, by heading with underscores for spaces."""
    lines = EMPTY.to_text().split("\n")
    for name, body in bodies.items():
        at = lines.index(f"# {name.replace('_', ' ')}")
        lines[at + 2 : at + 2] = ["", body]
    return "\n".join(lines)


def notes(text: str) -> NotesDocument:
    return NotesDocument.parse(text, TEMPLATE)


def test_shown_text_has_neither_hints_nor_empty_sections() -> None:
    assert EMPTY.is_empty
    assert notes(EMPTY.to_text()).shown_text() == ""
    read = notes(filled(Current_State="Mending `a.py`.", Worklog="- looked\n- mended"))
    assert not read.is_empty
    assert read.shown_text() == "# Current State\nMending `a.py`.\n\n# Worklog\n- looked\n- mended"
    assert (read.body("Worklog"), read.body("No such section")) == ("- looked\n- mended", "")


MALFORMED = ["#Workflow", "## Workflow", "# workflow:", "**Workflow**", "WORKFLOW", "  # Workflow #", "## Workflow\r"]


@pytest.mark.parametrize("broken", MALFORMED)
def test_malformed_heading_is_corrected(broken: str) -> None:
    text = filled(Workflow="make test", Learnings="be quick").replace("# Workflow", broken)
    read = notes(text)
    assert (read.body("Workflow"), read.body("Learnings")) == ("make test", "be quick")
    assert "\n# Workflow\n" in read.to_text()


CODE = "```sh\n## Workflow\nmake\n```"


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        (filled(Workflow="make").replace("# Workflow\n", ""), {"Workflow": "make"}),
        (f"{filled(Workflow='make')}\n# Workflow\ncheck\n", {"Workflow": "make\n\ncheck"}),
        (filled(Learnings="## Workflow\nso", Workflow="make"), {"Workflow": "make", "Learnings": "## Workflow\nso"}),
        (filled(Learnings=CODE).replace(f"# Workflow\n{HINTS[4]}\n", ""), {"Learnings": CODE}),
        (filled(Workflow="~~~~\nmake", Learnings="so"), {"Workflow": "~~~~\nmake\n~~~~", "Learnings": "so"}),
    ],
    ids=["hint only", "duplicate", "heading of an existing section", "heading in code", "open code block"],
)
def test_sections_are_found_in_edited_notes(text: str, bodies: dict[str, str]) -> None:
    read = notes(text)
    assert {heading: read.body(heading) for heading in HEADINGS if read.body(heading)} == bodies
    assert read.to_text().count("\n# Workflow\n") == 1


def test_text_under_an_unknown_heading_stays_in_place() -> None:
    read = notes("Read me first.\n\n" + filled(Workflow="make test\n\n# My own\nkeep this", Key_results="42"))
    assert read.body("Workflow") == "make test\n\n# My own\nkeep this"
    assert read.body("Key results") == "42"
    assert read.to_text().startswith("Read me first.\n\n# Session Title")
    assert read.shown_text().startswith("Read me first.")


def test_session_sections_come_last_and_are_replaced_whole() -> None:
    kept = notes(filled(Worklog="- began")).with_kept({"Team": "- scout: running", "Open tasks": "  "})
    text = kept.to_text()
    assert text.endswith(f"- began\n\n{KEPT}\n# Team\n- scout: running\n{END_OF_KEPT}\n")
    edited = notes(text.replace("scout: running", "scout: fired\n# Workflow\nlost"))
    assert (edited.body("Worklog"), edited.body("Workflow")) == ("- began", "")
    again = edited.with_kept({"Team": "- scout: idle"}).to_text()
    assert "fired" not in again
    assert "- scout: idle" in again
    assert "scout" not in edited.shown_text()
    text = EMPTY.with_kept({"Mail": f"hello\n{END_OF_KEPT}\n# Workflow\nrm -rf"}).to_text()
    assert notes(text).is_empty, "a session section cannot contain the end marker"


LINES = st.one_of(
    st.text(max_size=20),
    st.sampled_from([*HINTS, *(mark + heading for mark in ("# ", "#", "## ", "**", "") for heading in HEADINGS)]),
    st.sampled_from(["```", "~~~", "````py", "# other", "", " ", "\t", "> _x_", "\r", "[Trimmed to 3 tokens: x]"]),
)
FILES = st.lists(LINES, max_size=30).map("\n".join)


def counted(text: str) -> dict[str, int]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return {line: lines.count(line) for line in lines if line.strip()}


@pytest.mark.slow
@given(FILES)
@example(f"- began\n# Team\n- scout\n{END_OF_KEPT}\nthe milk")
@example(f"- began\n{KEPT}\n# Team\n- scout\nthe milk")
@example(f"{KEPT}\nmine\n{KEPT}\n# Team\n{END_OF_KEPT}\n")
def test_any_edited_notes_file_is_parsed_without_loss(text: str) -> None:
    """Lines other than headings and hints are kept as often as they occur; parsing again changes nothing."""
    read = notes(text)
    after, ours = counted(read.to_text()), {KEPT, END_OF_KEPT, *HINTS, *(f"# {heading}" for heading in HEADINGS)}
    names = {heading.casefold() for heading in HEADINGS}
    for line, count in counted(text).items():
        is_heading = line.strip("#* ").casefold() in names
        assert line.strip() in ours or is_heading or after.get(line, 0) >= count, line
    assert notes(read.to_text()) == read


@pytest.mark.slow
@given(FILES, st.integers(1, 60), st.integers(1, 120))
def test_trimmed_notes_are_within_limits_and_have_a_notice(text: str, section: int, total: int) -> None:
    read = notes(text)
    trimmed, over = trim_notes(read, NotesSettings(section=section, total=total))
    for heading, before, after in zip(["", *HEADINGS], read.bodies, trimmed.bodies, strict=True):
        assert (before != after) <= (heading in over)
        assert heading not in over or "[Trimmed to" in after
        assert tokens_of(after) <= max(section, 30)  # the size of the notice itself
    assert sum(map(tokens_of, trimmed.bodies)) <= total + 30 * len(over)


def test_worklog_loses_oldest_lines_and_other_sections_their_end() -> None:
    lines = "\n".join(f"- step {number}" for number in range(100))
    read = notes(filled(Worklog=lines, Learnings=lines, Workflow="```\n" + "make\n" * 1_000, Key_results="42"))
    trimmed, over = trim_notes(read, NotesSettings(section=100))
    assert over == ["Workflow", "Learnings", "Worklog"]
    log, learnings = trimmed.body("Worklog").split("\n"), trimmed.body("Learnings").split("\n")
    assert (log[0], log[-1]) == ("[Trimmed to 100 tokens: older lines were left out. Make it shorter.]", "- step 99")
    assert learnings[0] == "- step 0"
    assert learnings[-1] == "[Trimmed to 100 tokens: the end of this section was left out. Make it shorter.]"
    assert "- step 50" not in learnings
    assert trimmed.body("Workflow").split("\n")[-2] == "```", "the code block is closed"
    assert trimmed.body("Key results") == "42"
    grown = notes(trimmed.to_text().replace(trimmed.body("Worklog"), trimmed.body("Worklog") + "\n- one more"))
    again, _ = trim_notes(grown, NotesSettings(section=100))
    assert again.body("Worklog").count("[Trimmed") == 1, "the notice is not repeated"
    assert again.body("Worklog").endswith("- one more")
    assert trim_notes(again, NotesSettings(section=100)) == (again, [])


def test_user_template_has_its_own_sections() -> None:
    template = Template.parse("Notes of main\n\n# Goal\n_why_\n\n# Worklog\n")
    read = NotesDocument.parse("# Goal\n_why_\nwin\n# Current State\nx", template)
    assert read.shown_text() == "# Goal\nwin\n# Current State\nx"
    assert read.to_text() == "Notes of main\n\n# Goal\n_why_\n\nwin\n# Current State\nx\n\n# Worklog\n"
    with pytest.raises(NotesUnusable, match="the section 'A' twice"):
        Template.parse("# A\n# a\n")


def test_update_starts_with_a_complete_private_file_or_the_edited_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    read, content = begin_update(path, TEMPLATE)
    assert read.is_empty
    assert path.read_bytes() == content == EMPTY.to_text().encode()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(filled(Workflow="make").replace("# Workflow", "Workflow:").encode() + b"\xff\n")
    read, content = begin_update(path, TEMPLATE)
    assert (read.body("Workflow"), read.body("Worklog")) == ("make", "\\xff")
    assert path.read_bytes() == content


def test_failed_update_leaves_the_notes_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    with pytest.raises(NotesUnusable, match="were deleted"):
        end_update(path, TEMPLATE, NotesSettings(), {})
    begin_update(path, TEMPLATE)
    with pytest.raises(NotesUnusable, match="are empty"):
        end_update(path, TEMPLATE, NotesSettings(), {"Team": "- scout"})
    path.write_text(filled(Workflow="make"))
    with file_faults(SeededFaults(seed=1, full=1.0)), pytest.raises(OSError, match="No space"):
        end_update(path, TEMPLATE, NotesSettings(), {"Team": "- scout"})
    assert path.read_text() == filled(Workflow="make")


def test_only_a_regular_file_of_limited_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    assert read_notes(path, TEMPLATE) is None
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(path)
    path.unlink()
    (tmp_path / "other").write_bytes(b"x" * (LARGEST + 1))
    path.symlink_to("other")
    with pytest.raises(OSError, match="symbolic links") as caught:
        read_file(path)
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="too large"):
        read_file(path, follow=True)


RICH = Decimal(100)
CHEAP = Decimal("0.01")


def schedule(**facts: object) -> NotesSchedule:
    return NotesSchedule(settings=NotesSettings(), turns_usd=RICH, **facts)  # type: ignore[arg-type]  # by name


def begun(**facts: object) -> NotesSchedule:
    return schedule(since=20_000, has_begun=True, **facts)


def is_due(schedule: NotesSchedule, tokens: int, usd: Decimal) -> bool:
    return schedule.delay(tokens, usd) is None


FAILED = schedule().after_start(10_000).after_failure(CHEAP).after_turn(19_999, 3, CHEAP)
SHRUNK = begun().after_shrink(12_000).after_turn(13_000, 3, CHEAP)
CLEARED = begun().after_turn(8_000, 3, CHEAP)


@pytest.mark.parametrize(
    ("schedule", "tokens"),
    [
        pytest.param(schedule(), 10_000, id="the first update"),
        pytest.param(schedule(since=150_000), 160_000, id="a fork, after its inherited context"),
        pytest.param(begun(calls=3), 25_000, id="a later update"),
        pytest.param(begun(is_pausing=True), 25_000, id="a later update in a pause"),
        pytest.param(FAILED, 20_000, id="after two steps, if the first update failed"),
        pytest.param(SHRUNK, 17_000, id="after growth from a smaller context"),
        pytest.param(CLEARED, 13_000, id="after growth from a cleared context"),
    ],
)
def test_update_is_due_at_a_context_size_and_not_before(schedule: NotesSchedule, tokens: int) -> None:
    assert not is_due(schedule, tokens - 1, CHEAP)
    assert is_due(schedule, tokens, CHEAP)


def test_calls_are_counted_from_the_start_of_an_update() -> None:
    counted = begun(calls=3).after_start(25_000).after_turn(26_000, 2, CHEAP)
    assert (counted.calls, counted.is_pausing) == (2, False)
    assert not is_due(counted, 30_000, CHEAP)
    assert is_due(counted.after_turn(30_000, 1, CHEAP), 30_000, CHEAP)
    assert is_due(counted.after_turn(30_000, 0, CHEAP), 30_000, CHEAP)


def test_updates_use_their_share_of_the_cost_over_a_long_run() -> None:
    """Each turn adds 1,500 tokens and reads the context; an update reads it too, and writes."""
    now, tokens, updates = NotesSchedule(settings=NotesSettings()), 3_000, 0
    for _ in range(3_000):
        tokens = tokens + 1_500 if tokens < 160_000 else 40_000
        turn = Decimal(tokens) * 3 / 10_000_000 + Decimal("0.01")
        now = now.after_turn(tokens, 1, turn)
        update = turn + Decimal("0.01")
        if is_due(now, tokens, update):
            now, updates = now.after_start(tokens).after_success(update), updates + 1
    assert now.notes_usd <= now.turns_usd * 8 / 100
    assert now.notes_usd > now.turns_usd * 7 / 100
    assert updates > 80


def test_failure_doubles_the_wait_up_to_a_limit_until_success() -> None:
    failing, waits = begun(), []
    for _ in range(MOST_DOUBLINGS + 2):
        failing = failing.after_failure(CHEAP)
        waits.append(failing.wait)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000, 160_000, 160_000]
    assert failing.notes_usd == 7 * CHEAP
    assert failing.after_success(CHEAP).wait == 5_000


FULL = UpdateThreshold(tokens=167_000, most=40_000)


def test_half_the_cost_limit_is_reserved_for_urgent_updates() -> None:
    """The reserve is spent when the next turn may fill the context and exceed the tokens that may stay."""
    paid = begun(need=FULL, calls=3).after_success(Decimal("3.99"))
    assert paid.delay(90_000, CHEAP) is None
    paid = paid.after_success(CHEAP)
    assert [paid.is_close(tokens) for tokens in (146_999, 147_000)] == [False, True]
    assert paid.delay(146_999, CHEAP, unknown=40_000) == "money"
    assert paid.delay(147_000, CHEAP, unknown=20_000) == "money"
    assert paid.delay(147_000, CHEAP, unknown=20_001) is None
    assert paid.after_success(Decimal(4)).delay(147_000, CHEAP, unknown=40_000) == "money"
    assert not begun().is_close(10**9), "without a threshold nothing is reserved"
    assert begun(calls=3).after_success(Decimal("7.99")).delay(167_000, CHEAP) is None


def test_new_text_counts_though_it_replaced_cleared_text() -> None:
    """The context size is unchanged; but after a failure it must grow, so that not every turn retries."""
    flat = attrs.evolve(begun(need=FULL, calls=3), since=150_000)
    assert flat.delay(150_000, CHEAP, unknown=4_999) == "growth"
    assert flat.delay(150_000, CHEAP, unknown=5_000) is None
    assert flat.after_failure(CHEAP).delay(150_000, CHEAP, unknown=90_000) == "growth"
