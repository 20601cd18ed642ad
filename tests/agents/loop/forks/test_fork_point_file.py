"""A fork point is passed to another process as bytes, with the exact prefix of the parent."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.forks.fork import begin_fork, read_fork_file
from coterie.agents.loop.forks.fork_point import ForkPoint, PrefixDiffers
from coterie.agents.loop.model.catalog import Role
from coterie.errors import ConfigInvalid
from tests.agents.conversation_blocks import MESSAGES, SYSTEMS, TOOLS, text, thinking, tool_use

CHILD = """
import pathlib, sys
from coterie.agents.loop.forks.fork import begin_fork, read_fork_file
point = read_fork_file(pathlib.Path(sys.argv[1]))
for directive in sys.argv[2:]:
    sys.stdout.buffer.write(begin_fork(point, directive).render(max_tokens=9).body)
"""


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


@pytest.mark.slow
def test_other_process_sends_the_same_bytes_from_fork_point(tmp_path: Path) -> None:
    point = point_of(begun())
    file = tmp_path / "point"
    file.write_bytes(point.to_bytes())
    command = [sys.executable, "-P", "-c", CHILD, str(file), "Left.", "Right."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    siblings = [begin_fork(point, directive).render(max_tokens=9).body for directive in ("Left.", "Right.")]
    assert done.stdout == b"".join(siblings)
    assert read_fork_file(file).hash == point.hash


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_unusable_fork_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "point").write_bytes(content)
    with pytest.raises(ConfigInvalid, match="not a usable fork point"):
        read_fork_file(tmp_path / "point")
