"""Forks share their parent's prefix byte for byte, and the cache serves them."""

import json
import random
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.events.layer_events import CacheBroke
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.forks.fork import begin_fork, create_fork_point, is_fork, read_fork_file
from coterie.agents.loop.forks.fork_point import ForkPoint, ForkRefused, PrefixDiffers
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import Role, known_models
from coterie.agents.loop.run_result import RunLimits
from coterie.errors import ConfigInvalid
from coterie.memory.compaction.result_clearing import PLACEHOLDER, clear_results
from coterie.memory.layer_settings import ClearingSettings, LayersSettings
from tests.agents.conversation_blocks import MESSAGES, SYSTEMS, TOOLS, text, thinking, tool_use
from tests.agents.loop.forks.fork_family import Family, code, open_family
from tests.agents.opened_layers import build_pipeline
from tests.conformance.reference_cache import count_tokens

SIBLINGS = 20
LONG = 100_000
"""Tolerance in tokens."""
READ: dict[str, Any] = {"thinking": "Look.", "tools": [{"Read": {"text": "a"}}]}
SPAWN: dict[str, Any] = {
    "thinking": "Share it out.",
    "text": "I start them.",
    "tools": [{"Agent": {"text": str(n)}} for n in range(SIBLINGS)],
}
GO: dict[str, Any] = {"thinking": "Go.", "tools": [{"Agent": {"text": "1"}}]}
DONE: dict[str, Any] = {"text": "All done."}


def split(body: bytes) -> tuple[bytes, bytes]:
    """Split a body before the text of the directive."""
    end = body.index(b"Look at part ")
    return body[:end], body[end:]


def read_and_prompt(entry: dict[str, Any]) -> tuple[int, int]:
    usage = entry["usage"]
    read: int = usage["cache_read_input_tokens"]
    return read, read + usage["cache_creation_input_tokens"] + usage["input_tokens"]


def check_shared(family: Family, count: int) -> None:
    """All siblings send the same bytes up to their directives; the first reads the parent's entry, the others all."""
    names = [f"fork-{number}" for number in range(1, count + 1)]
    assert len({split(family.bodies(name)[0])[0] for name in names}) == 1
    first, *others = sorted((family.log(name)[0] for name in names), key=lambda entry: int(entry["number"]))
    before = family.log("main")[-2]["usage"]
    cached = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
    assert read_and_prompt(first)[0] == family.point.expected_read == cached
    for entry in others:
        read, prompt = read_and_prompt(entry)
        assert cached < read == prompt - directive_tokens(family, entry["agent"])
        assert read >= 0.99 * prompt or prompt < LONG
    assert not any(isinstance(event, CacheBroke) for events in family.events.values() for event in events)


def directive_tokens(family: Family, name: str) -> int:
    (fork,) = (fork for fork in family.forks if fork.identity.agent == name)
    said = fork.conversation.segments[len(family.point.prefix) :]
    (directive,) = (segment for segment in said if segment.role == "user" and segment.block_type == "text")
    return count_tokens(json.loads(directive.data))


@pytest.mark.slow
async def test_twenty_siblings_read_long_parent_from_cache(tmp_path: Path) -> None:
    """The parent has 100,000 tokens and twenty open calls; all forks start at the same time."""
    script = [READ, READ, READ, READ, SPAWN, DONE]

    async with open_family(
        tmp_path, script, spawn=lambda family: family.fork_many(SIBLINGS), read=lambda _: "line of code\n" * 8_000
    ) as family:
        ended = await run_loop(family.parent, RunLimits(turns=10))
        assert ended.reason == "completed"
        assert read_and_prompt(family.log("fork-1")[0])[1] > LONG
        check_shared(family, SIBLINGS)
        shared, _ = split(family.bodies("fork-1")[0])
        difference = family.parent.conversation.prefix.first_difference(family.forks[0].conversation.prefix)
        assert difference == len(family.point.prefix)
        assert shared.count(b'"cache_control"') == 3


async def test_fork_inherits_images_calls_thinking_and_read_files(tmp_path: Path) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "aWs="}
    script = [READ, {"thinking": "Both.", "tools": [{"Read": {"text": "b"}}, {"Agent": {"text": "1"}}]}, DONE]
    async with open_family(tmp_path, script, spawn=lambda family: family.fork_many(3)) as family:
        picture = json.dumps({"type": "image", "source": image}).encode()
        family.parent.append_message("user", [picture, text_block("Look at this, too. " * 300)])
        seen = tmp_path / "seen.py"
        seen.write_text("x = 1")
        family.parent.workspace.seen.record(seen, b"x = 1")
        await run_loop(family.parent, RunLimits(turns=10))
        check_shared(family, 3)
        assert family.point.prefix.header.has_images
        fork = family.forks[0]
        fork.workspace.seen.check(seen)
        fork.workspace.seen.record(tmp_path / "other", b"")
        assert family.parent.workspace.seen.known().keys() == {str(seen)}
        assert family.log("fork-1")[0]["turn"] == 1
        assert fork.fork_of == "main"


async def test_fork_after_rewrite_begins_with_rewritten_prefix(tmp_path: Path) -> None:
    async with open_family(
        tmp_path, [READ, READ, GO, DONE], spawn=lambda family: family.fork_many(2), read=code
    ) as family:
        parent = family.parent
        await run_loop(parent, RunLimits(turns=2))
        results = [segment for segment in parent.conversation.segments if segment.block_type == "tool_result"]
        parent.conversation.rewrite(clear_results(parent.conversation.segments, {str(results[0].tool_use_id)}))
        parent.transcript.record(parent.conversation)
        await run_loop(parent, RunLimits(turns=10))
        check_shared(family, 2)
        assert family.point.epoch == 1
        assert PLACEHOLDER.encode() in family.bodies("fork-1")[0]


async def test_fork_repeats_parents_cache_edits_and_adds_none(tmp_path: Path) -> None:
    settings = LayersSettings(clearing=ClearingSettings(by_api=False, trigger=2, keep=1))
    script = [READ, READ, READ, READ, GO, DONE]
    async with open_family(
        tmp_path,
        script,
        spawn=lambda family: family.fork_many(2),
        read=code,
        betas=(known_models().betas["cache_edits"],),
    ) as family:
        family.parent.pipeline = build_pipeline(settings, dict(family.parent.tools), tmp_path)
        await run_loop(family.parent, RunLimits(turns=10))
        check_shared(family, 2)
        edits = [segment.data for segment in family.point.prefix.segments if segment.block_type == "cache_edits"]
        assert edits
        assert all(data in family.bodies("fork-1")[0] for data in edits)


async def test_fork_with_expired_cache_reports_expiry(tmp_path: Path) -> None:
    script = [READ, GO, DONE]

    async def spawn(family: Family) -> None:
        await family.fork_many(1)
        family.served.clock.advance(301)
        await family.fork(2, family.point)

    async with open_family(tmp_path, script, spawn=spawn, read=code) as family:
        await run_loop(family.parent, RunLimits(turns=10))
        assert not any(isinstance(event, CacheBroke) for event in family.events["fork-1"])
        (broke,) = [event for event in family.events["fork-2"] if isinstance(event, CacheBroke)]
        assert (broke.cause, broke.read_now) == ("expired", 0)
        assert broke.read_before == family.point.expected_read


async def test_many_blocks_in_last_reply_do_not_hide_parents_cache_entry(tmp_path: Path) -> None:
    """The API searches at most twenty blocks backwards from a marker."""
    async with open_family(tmp_path, [READ, DONE], read=code) as family:
        parent = family.parent
        await run_loop(parent, RunLimits(turns=10))
        parent.conversation.append("user", [text_block("Go on.")])
        parent.conversation.append("assistant", [text_block(f"Point {n}.") for n in range(30)])
        point = create_fork_point(parent)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(family.fork, 1, point)
        assert read_and_prompt(family.log("fork-1")[0])[0] == point.expected_read


async def test_fork_cannot_be_forked(tmp_path: Path) -> None:
    """The field `fork_of` prevents it, and without that field the directive in the conversation."""
    async with open_family(tmp_path, [GO, DONE], spawn=lambda family: family.fork_many(1)) as family:
        with pytest.raises(ForkRefused, match="nothing to fork"):
            create_fork_point(family.parent)
        await run_loop(family.parent, RunLimits(turns=10))
        (fork,) = family.forks
        assert is_fork(fork.conversation)
        assert not is_fork(family.parent.conversation)
        with pytest.raises(ForkRefused):
            create_fork_point(fork)
        fork.fork_of = None
        with pytest.raises(ForkRefused):
            create_fork_point(fork)
        fork.fork_of = "main"
        fork.conversation.rewrite([("user", [text_block("A summary.")]), ("assistant", [text_block("Yes.")])])
        with pytest.raises(ForkRefused):
            create_fork_point(fork)


async def test_fork_with_different_prefix_raises_prefix_differs(tmp_path: Path) -> None:
    async with open_family(tmp_path, [READ, DONE]) as family:
        await run_loop(family.parent, RunLimits(turns=10))
        point = create_fork_point(family.parent)
        other = begin_fork(point, "Go.")
        other.rewrite([*other.messages[:1], ("assistant", [text_block("Something else.")])])
        with pytest.raises(PrefixDiffers, match="text of 40 bytes") as caught:
            point.check(other.prefix)
        assert caught.value.index == 5
        changed = attrs.evolve(point.prefix.header, effort="low")
        with pytest.raises(PrefixDiffers, match="key header differs"):
            point.check(point.prefix.under(changed))
        with pytest.raises(PrefixDiffers, match="nothing instead of"):
            point.check(point.prefix.cut(3))
        damaged = point.to_bytes().replace(b"All done.", b"All gone.")
        with pytest.raises(PrefixDiffers) as caught:
            ForkPoint.from_bytes(damaged)
        assert caught.value.index == len(point.prefix) - 1


def point_of(conversation: Conversation) -> ForkPoint:
    return ForkPoint(
        parent="main",
        prefix=conversation.prefix,
        epoch=conversation.epoch,
        previous=conversation.marks.previous,
        tokens=1_000,
        expected_read=900,
        used_at=12.5,
        ttl=CacheTtls(system="1h"),
        seen={"/a.py": "00ff"},
        directory="src",
    )


def begun() -> Conversation:
    conversation = Conversation.begin(KeyHeader(model="claude-opus-5-5"), tools=[b"{}"], system=[text("s" * 90)])
    conversation.append("user", [text("Go.")])
    conversation.sent(conversation.render(max_tokens=1))
    conversation.append("assistant", [thinking(), tool_use("toolu_1", b'{ "n": 1.0 }'), tool_use("toolu_2")])
    return conversation


@given(TOOLS, SYSTEMS, st.lists(MESSAGES, max_size=4))
def test_fork_point_is_restored_from_its_bytes(
    tools: list[bytes], system: list[bytes], messages: list[tuple[Role, list[bytes]]]
) -> None:
    conversation = Conversation.begin(KeyHeader(model="m"), tools=tools, system=system)
    for role, blocks in messages:
        conversation.append(role, blocks)
    point = point_of(conversation)
    back = ForkPoint.from_bytes(point.to_bytes())
    assert back.prefix.to_bytes() == point.prefix.to_bytes()
    assert back.prefix.first_difference(point.prefix) is None
    sent = [begin_fork(each, "Left.").render(max_tokens=9).body for each in (point, back)]
    assert sent[0] == sent[1]
    for name in ("parent", "epoch", "previous", "tokens", "expected_read", "used_at", "ttl", "seen", "directory"):
        assert getattr(back, name) == getattr(point, name)


@given(st.binary(max_size=40))
def test_bytes_of_no_fork_point_are_refused(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="not a fork point"):
        ForkPoint.from_bytes(garbage)


@given(st.randoms(use_true_random=False))
def test_damage_to_any_byte_of_prefix_is_detected(dice: random.Random) -> None:
    stored = bytearray(point_of(begun()).to_bytes())
    blocks = sum(len(segment.data) for segment in begun().segments)
    at = len(stored) - 1 - dice.randrange(blocks)
    stored[at] ^= 1 << dice.randrange(8)
    with pytest.raises(PrefixDiffers):
        ForkPoint.from_bytes(bytes(stored))


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_unusable_fork_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "point").write_bytes(content)
    with pytest.raises(ConfigInvalid, match="the fork point is unusable"):
        read_fork_file(tmp_path / "point")
