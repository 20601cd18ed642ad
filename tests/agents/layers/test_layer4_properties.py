"""Properties of any compaction of any conversation: the API accepts the result, and required content stays."""

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.agents.events.layer_events import Compacted
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.prefix import PrefixMessage
from coterie.agents.loop.conversation.transcript_records import Trigger, UserTextRecord
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.root_link.job_messages import Pivot, Side
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.tool import RESULTS_DIRECTORY
from coterie.memory.compaction.summary_text import block_text
from coterie.memory.layer_settings import ClearingSettings, CompactionSettings, LayersSettings, NotesSettings
from tests.agents.conversation_blocks import CHARACTERS, image
from tests.agents.opened_layers import begin_section, open_notes
from tests.agents.scripted_agent import NotingTool, open_agent, open_resumed_agent
from tests.embedded_server import Served
from tests.examples import examples

CONTEXT = "The project is called Rosebud."
COLD = 301.0
"""Seconds after which cache entries have expired."""
OVERFLOW = PromptTooLong(actual=1_000_000, most=10)
"""A conversation so long that it can only be summarised in parts."""
SUMMARIES: dict[str, dict[str, Any]] = {
    "good": {"text": "<analysis>hm</analysis><summary>It went on.</summary>"},
    "empty": {"text": "<summary></summary>"},
    "cut": {"text": "<summary>half", "stop": "max_tokens"},
    "calling": {"text": "No: first", "tools": [{"Note": {"text": "-"}}]},
}

Way = Literal["notes", "model", "parts", "rule"]


@attrs.frozen(kw_only=True)
class Cut:
    """One requested compaction."""

    way: Way
    side: Side | None
    message: int
    settings: CompactionSettings


@attrs.frozen(kw_only=True)
class Round:
    """One reply of the model and its consequences."""

    thinks: bool
    has_text: bool
    results: tuple[int, ...]
    """Length of the result of each call; a reply without calls ends the turn."""
    said: str
    """The next user message, if the reply makes no calls."""
    by: Literal["human", "mail", "picture"]
    is_cold: bool
    """True if the cache expires before this reply is requested."""
    cuts: tuple[Cut, ...]
    """Compactions directly before this reply is requested."""

    def reply(self, number: int) -> dict[str, Any]:
        """Return the reply in the form of a script."""
        tools = [{"Note": {"text": f"{number}.{call} {size}"}} for call, size in enumerate(self.results)]
        has_text = self.has_text or not tools
        return {
            **({"thinking": f"thought {number}"} if self.thinks else {}),
            **({"text": f"step {number}"} if has_text else {}),
            **({"tools": tools} if tools else {}),
        }


@attrs.frozen(kw_only=True)
class Dialogue:
    """A random conversation with compactions."""

    rounds: tuple[Round, ...]
    window: int
    clears_by_time: bool
    clears_by_cache: bool
    summaries: tuple[str, ...]
    """First replies to summary requests; later replies are good summaries."""
    last: tuple[Cut, ...]
    """Compactions after the last reply."""

    def script(self, directory: Path) -> str:
        replies = [round_.reply(number) for number, round_ in enumerate(self.rounds)]
        summaries = [{"purpose": "compaction", **SUMMARIES[kind]} for kind in self.summaries]
        always = {"purpose": "compaction", "times": "always", **SUMMARIES["good"]}
        notes = {"purpose": "notes", "times": "always", "tools": [begin_section(directory, "Current State", "Noted.")]}
        return json.dumps({"default": [*summaries, always, notes, *replies, {"text": "done", "times": "always"}]})


CUTS = st.builds(
    Cut,
    way=st.sampled_from(["notes", "model", "parts", "rule"]),
    side=st.sampled_from([None, None, "from", "up_to"]),
    message=st.integers(1, 30),
    settings=st.builds(
        CompactionSettings,
        keep_least=st.sampled_from([0, 300, 10_000]),
        keep_texts=st.integers(0, 5),
        keep_most=st.sampled_from([0, 1_000, 40_000]),
    ),
)
ASKED = st.lists(CUTS, max_size=2).map(tuple)
ROUNDS = st.builds(
    Round,
    thinks=st.booleans(),
    has_text=st.booleans(),
    results=st.lists(st.sampled_from([0, 10, 900, 5_000, 60_000]), max_size=3).map(tuple),
    said=st.text(CHARACTERS, min_size=1, max_size=40).filter(str.strip),
    by=st.sampled_from(["human", "human", "mail", "picture"]),
    is_cold=st.sampled_from([False, False, False, True]),
    cuts=st.one_of(st.just(()), st.just(()), ASKED),
)
STORIES = st.builds(
    Dialogue,
    rounds=st.lists(ROUNDS, min_size=2, max_size=9).map(tuple),
    window=st.sampled_from([34_000, 37_000, 45_000, 200_000]),
    clears_by_time=st.booleans(),
    clears_by_cache=st.booleans(),
    summaries=st.lists(st.sampled_from(list(SUMMARIES)), max_size=4).map(tuple),
    last=ASKED,
)

CALLING = Round(thinks=True, has_text=True, results=(10,), said="-", by="mail", is_cold=False, cuts=())
REOPENED = Dialogue(
    rounds=(CALLING, CALLING, CALLING),
    window=200_000,
    clears_by_time=False,
    clears_by_cache=False,
    summaries=(),
    last=(
        Cut(way="model", side=None, message=1, settings=CompactionSettings()),
        Cut(way="model", side="from", message=3, settings=CompactionSettings()),
    ),
)
"""A conversation in which calls lose their thinking, and later blocks are removed."""


@attrs.frozen
class Team:
    """A pinned section."""

    heading: str = "Team"

    async def text(self, agent: Agent) -> str:
        """Return a text that depends on the agent's turn."""
        return f"ada, ben, cleo and dan work for {agent.identity.agent} at turn {agent.turn}"


class Watched(CompactionStep):
    """Compaction step that checks the conversation after each compaction."""

    async def compact(
        self, agent: Agent, trigger: Trigger, pivot: Pivot | None = None, overflow: PromptTooLong | None = None
    ) -> Compacted | None:
        """As `CompactionStep.compact`, then check the result."""
        before = agent.conversation.messages
        told = await super().compact(agent, trigger, pivot, overflow)
        after = agent.conversation.messages
        if told is None:
            assert trigger == "manual"
            assert after == before
            return None
        check_kept(agent, after)
        check_pairs(after)
        if pivot is None or pivot.side == "up_to":
            assert CONTEXT in text_of(after[:1])
            check_pending(before, after, agent.workspace.scratch / RESULTS_DIRECTORY)
        return told

    async def do(self, agent: Agent, cut: Cut) -> None:
        """Run the requested compaction."""
        self.settings = attrs.evolve(cut.settings, by_notes=cut.way == "notes", by_model=cut.way != "rule")
        count = len(agent.conversation.messages)
        pivot = None if cut.side is None else Pivot(side=cut.side, message=1 + cut.message % count)
        if cut.way == "parts":
            await self.compact(agent, "overflow", pivot, OVERFLOW)
        else:
            await self.compact(agent, "threshold" if cut.way == "rule" else "manual", pivot)


@attrs.frozen
class Meanwhile:
    """Call step that expires the cache and compacts before each reply, as the random conversation requires."""

    story: Dialogue
    compact: Watched
    served: Served

    async def before_call(self, agent: Agent) -> None:
        if agent.turn <= len(self.story.rounds):
            round_ = self.story.rounds[agent.turn - 1]
            self.served.clock.advance(COLD if round_.is_cold else 0)
            for cut in round_.cuts:
                await self.compact.do(agent, cut)


def text_of(messages: Sequence[PrefixMessage]) -> str:
    return "\n".join(block_text(block) for message in messages for block in message.blocks)


def check_kept(agent: Agent, after: Sequence[PrefixMessage]) -> None:
    """User texts are verbatim, and pinned sections are current."""
    text = text_of(after)
    assert [said for said in agent.user_texts if said not in text] == []
    assert f"work for main at turn {agent.turn}" in text


def check_pairs(messages: Sequence[PrefixMessage]) -> None:
    """Every result follows its call, and every call except the last ones has its result."""
    called: set[str] = set()
    for message in messages:
        blocks = [json.loads(block) for block in message.blocks]
        if message.role == "assistant":
            assert not called
        called ^= {block["id"] for block in blocks if block["type"] == "tool_use"}
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        assert answered <= called
        called -= answered
    assert not called


def check_pending(before: Sequence[PrefixMessage], after: Sequence[PrefixMessage], results: Path) -> None:
    """The blocks to answer next are unchanged, or in a file of *results* that is named.

    A last summary replaces what was there, and another one takes its place.
    """
    assert after[-1].role == before[-1].role
    text = text_of(after)
    stored = [path.read_text() for path in results.glob("*") if str(path) in text]
    last = [block_text(block) for block in before[-1].blocks]
    for said in () if any(said.startswith("<earlier-conversation>") for said in last) else last:
        assert said in text or any(said in content for content in stored)


async def read_context() -> str:
    return CONTEXT


async def result(notes: Any, words: str) -> str:
    """Wait for the notes, and return the tool's result for `<number> <size>`."""
    await notes.wait_until_written()
    number, _, size = words.partition(" ")
    return f"result {number} ".ljust(int(size), "x")[: int(size)] if size else "denied"


def add_round(agent: Agent, round_: Round) -> None:
    """Append a user message to answer in the next turn."""
    blocks = [text_block(round_.said)]
    if round_.by == "picture":
        blocks.append(image())
    agent.append_message("user", blocks, *([UserTextRecord(texts=[round_.said])] if round_.by == "human" else []))


async def run_dialogue(story: Dialogue, directory: Path) -> None:
    compact = Watched(pinned_sections=[Team()], context=read_context)
    layers = LayersSettings(
        clearing=ClearingSettings(
            by_time=story.clears_by_time, by_cache=story.clears_by_cache, by_api=False, keep=1, trigger=2
        )
    )
    tools = (NotingTool(name="Note", act=lambda words: result(compact.notes, words)), Edit())
    async with (
        open_agent(story.script(directory), directory, *tools, layers=layers, window=story.window, compact=compact) as (
            agent,
            served,
        ),
        open_notes(agent, NotesSettings(first=500, step=300, calls=1, share=1.0), [Team()]) as compact.notes,
    ):
        step = Meanwhile(story, compact, served)
        agent.pipeline = attrs.evolve(agent.pipeline, before_call=(step, *agent.pipeline.before_call))
        for round_ in (each for each in story.rounds if not each.results):
            assert (await run_loop(agent, RunLimits(turns=99))).reason == "completed"
            add_round(agent, round_)
        assert (await run_loop(agent, RunLimits(turns=99))).text == "done"
        for cut in story.last:
            await compact.do(agent, cut)
        agent.append_message("user", [text_block("And now?")])
        assert (await run_loop(agent, RunLimits(turns=1))).text == "done"
        refused = [entry for entry in served.requests if entry["status"] != 200]
        assert not refused
        with open_resumed_agent(agent, agent.transcript.path) as again:
            assert again.conversation.prefix_bytes() == agent.conversation.prefix_bytes()
            assert again.user_texts == agent.user_texts


@pytest.mark.slow
@pytest.mark.timeout(1200)
@examples(25)
@example(story=REOPENED)
@given(story=STORIES)
def test_any_compaction_is_valid_for_api_and_keeps_required_content(story: Dialogue) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(partial(run_dialogue, story, Path(directory)))
