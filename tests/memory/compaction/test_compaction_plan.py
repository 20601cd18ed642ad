"""Decisions of compaction: cut point, summary, kept user texts, restored files, and terms that a summary lost."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.layers.layer4_compaction.plan import CompactionJob, CompactionPlan
from coterie.agents.layers.layer4_compaction.rebuild import SummaryParts, newest_files, read_files, rebuild_truncated
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.tool import Workspace
from coterie.memory.compaction.cut_point import (
    Messages,
    MessageSizes,
    choose_start,
    find_starts,
    first_unknown,
    last_start,
    oldest_rounds,
    split_messages,
)
from coterie.memory.compaction.fidelity import find_lost_terms
from coterie.memory.compaction.result_clearing import PLACEHOLDER_TOKENS, kept_size, kept_size_after, make_cache_edits
from coterie.memory.compaction.summary_text import (
    BEGINNING,
    block_text,
    fit_user_texts,
    missing_user_texts,
    parse_summary,
)
from coterie.memory.errors import SummaryUnusable
from coterie.memory.layer_settings import CompactionSettings
from tests.agents.conversation_blocks import HEADER, text, thinking, tool_result, tool_use
from tests.agents.scripted_agent import NotingTool, open_agent


def dialogue(letters: str) -> Messages:
    """Return one message per letter: *u*ser, *a*ssistant, *c*all, *r*esult."""
    conversation = Conversation.begin(HEADER, tools=[b'{"name":"Bash"}'], system=[text("Be good.")])
    for number, letter in enumerate(letters):
        match letter:
            case "u":
                conversation.append("user", [text(f"word {number}")])
            case "a":
                conversation.append("assistant", [thinking(), text(f"step {number}")])
            case "c":
                conversation.append("assistant", [thinking(), tool_use(f"toolu_{number}")])
            case _:
                conversation.append("user", [tool_result(f"toolu_{number - 1}")])
    return split_messages(conversation.segments)


DIALOGUES = st.lists(st.sampled_from(["u", "a", "cr", "cr", "au"]), max_size=12).map(lambda parts: "u" + "".join(parts))
SIZED = DIALOGUES.map(dialogue).flatmap(
    lambda messages: st.tuples(
        st.just(messages), st.lists(st.integers(0, 100), min_size=len(messages), max_size=len(messages))
    )
)
Sized = tuple[Messages, list[int]]
SETTINGS = st.builds(
    CompactionSettings, keep_least=st.integers(0, 300), keep_texts=st.integers(0, 6), keep_most=st.integers(0, 500)
)


@pytest.mark.parametrize(
    ("letters", "starts"),
    [("", []), ("u", []), ("ua", [1]), ("ucrcra", [1, 3, 5]), ("ucruau", [1, 3, 4, 5]), ("uu", [1])],
)
def test_cut_points_are_never_at_a_result(letters: str, starts: list[int]) -> None:
    messages = dialogue(letters)
    assert len(messages) == len(letters), "tools and system are no messages"
    assert find_starts(messages) == starts
    assert last_start(messages) == (starts[-1] if starts else len(letters))


@pytest.mark.parametrize(
    ("letters", "replies", "first"),
    [("ucrcra", 0, 6), ("ucrcra", 1, 4), ("ucrcra", 2, 2), ("ucrcra", 3, 0), ("ucru", 0, 2), ("u", 0, 0), ("", 0, 0)],
)
def test_first_unknown_follows_the_last_known_reply(letters: str, replies: int, first: int) -> None:
    assert first_unknown(dialogue(letters), replies) == first


@given(DIALOGUES, st.integers(0, 8))
def test_kept_size_after_counts_from_the_end(letters: str, replies: int) -> None:
    messages = dialogue(letters)
    segments = [segment for message in messages for segment in message]
    sizes = MessageSizes(messages, partial(kept_size, count=len, gone=()))
    assert kept_size_after(segments, replies, len) == sum(sizes[first_unknown(messages, replies) :])


def test_cache_deleted_results_and_thinking_have_no_size() -> None:
    conversation = Conversation.begin(HEADER)
    conversation.append("user", [text("go")])
    for number in range(3):
        conversation.append("assistant", [thinking(), tool_use(f"toolu_{number}")])
        conversation.append("user", [tool_result(f"toolu_{number}")])
    whole = kept_size_after(conversation.prefix, 2, len)
    conversation.append("assistant", [text("so")])
    conversation.append("user", [make_cache_edits(["toolu_0", "toolu_1"])])
    known = len(tool_use("toolu_1")) + len(tool_use("toolu_2")) + len(text("so"))
    assert whole == known - len(text("so")) + 3 * len(tool_result("toolu_0"))
    assert kept_size_after(conversation.prefix, 3, len) == known + len(tool_result("toolu_0")) + 2 * PLACEHOLDER_TOKENS


@given(SIZED, SETTINGS)
def test_cut_keeps_whole_rounds_and_no_more_than_needed(sized: Sized, settings: CompactionSettings) -> None:
    messages, sizes = sized
    start = choose_start(messages, sizes, settings)
    assert start is not None
    places = [*find_starts(messages), len(messages)]
    assert start in places
    assert start < len(messages) or len(places) == 1
    rounds = places[places.index(start) :]
    # The last round always stays; other rounds only if they fit.
    assert len(rounds) == 2 or sum(sizes[start:]) <= settings.keep_most or len(places) == 1
    # One round less would be below the minimum.
    assert all(not _is_enough(messages, sizes, settings, later) for later in rounds[1:-1])
    if not _is_enough(messages, sizes, settings, start) and start != places[0]:
        before = places[places.index(start) - 1]
        assert sum(sizes[before:]) > settings.keep_most


@given(SIZED, SETTINGS, st.integers(0, 20))
def test_unknown_messages_are_kept_or_nothing_is_cut(sized: Sized, settings: CompactionSettings, unknown: int) -> None:
    messages, sizes = sized
    unknown = min(unknown, len(messages))
    start = choose_start(messages, sizes, settings, unknown)
    known = [place for place in (*find_starts(messages), len(messages)) if place <= unknown]
    if start is not None:
        assert start in known
        assert start <= (choose_start(messages, sizes, settings) or 0)
    else:
        assert not known or sum(sizes[max(known) :]) > settings.keep_most


def _is_enough(messages: Messages, sizes: Sequence[int], settings: CompactionSettings, start: int) -> bool:
    texts = sum(any(segment.block_type == "text" for segment in message) for message in messages[start:])
    return sum(sizes[start:]) >= settings.keep_least and texts >= settings.keep_texts


@given(SIZED, st.integers(0, 1_500))
def test_oldest_rounds_are_removed_whole_and_no_more_than_needed(sized: Sized, tokens: int) -> None:
    messages, sizes = sized
    end = oldest_rounds(messages, sizes, tokens)
    places = [*find_starts(messages), len(messages)]
    assert end in places
    assert sum(sizes[:end]) >= tokens or end == len(messages)
    assert all(sum(sizes[:earlier]) < tokens for earlier in places[: places.index(end)])


def test_small_context_keeps_less() -> None:
    settings = CompactionSettings().within(12_000)
    assert (settings.keep_least, settings.keep_texts, settings.keep_most) == (1_500, 5, 4_000)
    assert (settings.files_total, settings.file) == (3_000, 3_000)
    assert CompactionSettings().within(1_000_000) == CompactionSettings()


@pytest.mark.parametrize(
    ("reply", "summary"),
    [
        ("<analysis>hm</analysis>\n<summary>\n1. All.\n</summary>\nBye.", "1. All."),
        ("Sure:\n<summary>All.", "All."),
        ("<analysis>first <summary>no</summary></analysis><summary>yes</summary>", "yes"),
        ("<analysis>hm</analysis>All of it.", "All of it."),
        ("All of it.", "All of it."),
        ("<summary>a < b</summary><summary>c</summary>", "a < b"),
    ],
)
def test_summary_is_parsed_from_a_reply(reply: str, summary: str) -> None:
    assert parse_summary(reply, is_whole=True) == summary


@pytest.mark.parametrize(
    "reply", ["", "  \n", "<summary> </summary>", "<analysis>only that</analysis>", "<analysis>and no end"]
)
def test_empty_or_cut_summary_is_unusable(reply: str) -> None:
    with pytest.raises(SummaryUnusable, match="no summary"):
        parse_summary(reply, is_whole=True)
    with pytest.raises(SummaryUnusable, match="cut off"):
        parse_summary(f"<summary>All.</summary>{reply}", is_whole=False)


def test_user_texts_are_missing_unless_present_verbatim() -> None:
    words = ["Fix  it.", "now", "Fix  it.", " ", 'Use "tabs".\nAlways.']
    assert missing_user_texts(words, 'Fix it. Use "tabs". Always. Do it now!') == ["Fix  it.", 'Use "tabs".\nAlways.']


WORDS = st.lists(st.text("ab \n€", min_size=1, max_size=30), min_size=1, max_size=8)


@given(WORDS, st.integers(0, 3_000))
def test_fitted_user_texts_keep_the_task_and_the_newest(words: list[str], tokens: int) -> None:
    shown = fit_user_texts(words, tokens, "/transcript")
    size = sum(len(said.encode()) for said in words)
    if size <= 4 * tokens:
        assert shown == words
        return
    assert shown[0] == words[0]
    newest = shown[2:]
    assert shown[1:2] == (
        [] if len(words) == 1 else [f"[{len(words) - 1 - len(newest)} messages left out here; see /transcript]"]
    )
    assert newest == words[len(words) - len(newest) :]
    kept = sum(len(said.encode()) for said in (words[0], *newest))
    assert not newest or kept <= 4 * tokens


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=6), st.integers(0, 20_000))
def test_longest_user_texts_are_cut_first_with_a_reference(sizes: list[int], tokens: int) -> None:
    words = [f"{number}:".ljust(size, "x") for number, size in enumerate(sizes)]
    shown = fit_user_texts(words, tokens, "/transcript")
    cut = [said for said in shown if said.endswith("bytes in all; see /transcript]")]
    whole = [said for said in shown if said in words]
    gone = [said for said in words if said not in shown and said[:2] not in {each[:2] for each in cut}]
    assert shown[0].startswith("0:")
    assert all(len(said) <= BEGINNING + 100 for said in cut)
    assert not gone or all(len(said) <= 2 * BEGINNING for said in whole)
    if cut and whole:
        longest = max(len(said) for said in whole)
        assert all(len(words[int(said[0])]) >= min(longest, 2 * BEGINNING) for said in cut)


def test_newest_files_are_restored_except_visible_and_own_ones(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path, scratch=tmp_path / "agents" / "main")
    assert newest_files(workspace, (), 5) == []
    for name in ("old.py", 'a"b.py', "agents/main/notes.md", "c.py", "seen.py", "d.py"):
        workspace.seen.record(tmp_path / name, b"content")
    named = [{"file_path": str(tmp_path / 'a"b.py')}, {"file_path": "seen.py"}]
    calls = [tool_use("toolu_1", json.dumps(arguments).encode()) for arguments in named]
    assert newest_files(workspace, calls, 5) == [str(tmp_path / name) for name in ("d.py", "c.py", "old.py")]
    assert newest_files(workspace, calls, 1) == [str(tmp_path / "d.py")]


def test_restored_files_have_current_content_within_limits(tmp_path: Path) -> None:
    contents = {"short": b"one\n", "long": b"line\n" * 20, "binary": b"\xff\xfe", "long binary": b"\x89PNG" * 20}
    contents |= {"wide": "€".encode() * 20, "last": b"x" * 9}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    settings = CompactionSettings(file=8, files_total=25)
    files = read_files([str(tmp_path / name) for name in ("gone", *contents)], settings)
    more = "\n[... there is more; read the file]"
    texts = {"short": "one\n", "long": "\n".join(["line"] * 6) + more, "wide": "€" * 10 + more, "last": "x" * 9}
    assert {Path(file.name).name: file.shown for file in files} == {
        name: f'<file path="{tmp_path / name}">\n{text}\n</file>' for name, text in texts.items()
    }
    assert read_files([str(tmp_path / "long")], attrs.evolve(settings, files_total=0)) == []


async def test_too_long_results_are_stored_in_named_files(tmp_path: Path) -> None:
    """The shortest sufficient cap is used; shorter results stay whole."""
    script = json.dumps({"default": [{"text": "a", "tools": [{"Note": {"text": "x"}}]}, {"text": "done"}]})
    tool = NotingTool(name="Note", act=lambda _: "long line\n" * 4_000)
    async with open_agent(script, tmp_path, tool, window=45_000) as (agent, _):
        await run_loop(agent, RunLimits(turns=9))
        agent.append_message("user", [text_block("short word " * 500)])
        job = CompactionJob.of(agent, CompactionSettings(), "threshold")
        plan = CompactionPlan(by="rule", summary="(left)", start=1)
        material = SummaryParts(user_text_room=1_000, where="/transcript")
        assert rebuild_truncated(attrs.evolve(job, room=100_000), plan, material, tmp_path / "files").tokens > job.room
        assert not (tmp_path / "files").exists()
        rebuilt = rebuild_truncated(job, plan, material, tmp_path / "files")
    assert rebuilt.tokens <= job.room
    [stored] = (tmp_path / "files").iterdir()
    assert stored.read_text() == "long line\n" * 4_000
    texts = [block_text(block) for _, blocks in rebuilt.messages for block in blocks]
    assert "short word " * 500 in texts
    assert [str(stored) in said for said in texts].count(True) == 1


NAMED = "src/app.py /etc/hosts snake_case CamelCase os.path --dry-run E1234 a1b2c3d 4096 3.11.4"
TERMS = st.sampled_from(NAMED.split())
PROSE = st.sampled_from(("and", "the file", "was read, then", "(see", "it).", "and/or", "e.g."))


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Look at src/app/main.py:120, then /etc/hosts.", ["src/app/main.py", "120", "/etc/hosts"]),
        ("./run.sh and ../lib/ and ~/notes and README.md", ["./run.sh", "../lib", "~/notes", "README.md"]),
        ("call `read_line()` of TranscriptWriter", ["read_line", "TranscriptWriter"]),
        ("HTTPServer(os.environ['PATH'])", ["HTTPServer", "os.environ", "PATH"]),
        ("git log --oneline -n 5 a1b2c3d", ["--oneline", "a1b2c3d"]),
        ("E501 in claude-opus-5-5, ENOENT", ["E501", "claude-opus-5-5", "ENOENT"]),
        ("160,000 tokens, 1.5 s, version 3.11.4, on 2026-11-16", ["160000", "1.5", "3.11.4", "2026-11-16"]),
        ("__init__ and _private of .env", ["__init__", "_private", ".env"]),
    ],
)
def test_paths_names_and_numbers_are_terms(text: str, marked: list[str]) -> None:
    assert find_lost_terms([text], "") == marked


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, said well; and/or others, e.g. these: 7, the 1st, n/a.",
        "Copyright 2026, since 1998",
        "     1\timport\n    12\tthe\n  1234\tend",
        "... -- - / // . @ ~",
        "",
    ],
)
def test_prose_years_and_line_numbers_are_not_terms(text: str) -> None:
    assert find_lost_terms([text], "") == []


def test_lost_terms_are_ordered_by_newest_turn_without_duplicates() -> None:
    turns = ["open old.py and a.py", "a.py has 42 lines", "new.py calls run_loop in a.py"]
    assert find_lost_terms(turns, "We looked at a.py:7.") == ["new.py", "run_loop", "42", "old.py"]


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("4096 in src/app.py", "14096 in src/app.pyc and lib/src/app.py", ["4096", "src/app.py"]),
        ("160,000 tokens", "160000 tokens", []),
        ("160000 tokens", "(160,000)", []),
    ],
)
def test_term_is_kept_as_a_whole_word_with_or_without_commas(before: str, after: str, lost: list[str]) -> None:
    assert find_lost_terms([before], after) == lost


@given(st.lists(st.lists(TERMS | PROSE, max_size=8), max_size=5), st.lists(TERMS | PROSE, max_size=8))
def test_term_is_lost_exactly_if_it_is_missing_afterwards(before: list[list[str]], after: list[str]) -> None:
    texts = list(map(" ".join, before))
    expected: dict[str, None] = {}
    for words in reversed(texts):
        expected |= dict.fromkeys(find_lost_terms([words], ""))
    gone = [word for word in expected if word not in find_lost_terms([" ".join(after)], "")]
    assert find_lost_terms(texts, " ".join(after)) == gone


@given(st.text(), st.text())
def test_any_text_loses_no_terms_of_itself(text: str, more: str) -> None:
    assert find_lost_terms([text], f"{more} {text}") == []
    assert set(find_lost_terms([text], more)) <= set(find_lost_terms([text], ""))


def test_block_text_is_the_readable_text() -> None:
    def shown(block: dict[str, object]) -> str:
        return block_text(json.dumps(block).encode())

    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}, {"type": "text", "text": "b"}]
    assert shown({"type": "text", "text": "said"}) == "said"
    assert shown({"type": "tool_use", "input": {"path": "a.py", "lines": [3, None, {"deep": "x"}]}}) == "a.py\n3\nx"
    assert shown({"type": "tool_result", "content": "plain"}) == "plain"
    assert shown({"type": "tool_result", "content": parts}) == "a\nb"
    assert shown({"type": "thinking", "thinking": "hm", "signature": "s"}) == ""
