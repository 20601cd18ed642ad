"""Requests and replies over a real socket: cancellation, errors, and the end of the connection."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.errors import BudgetSpent, ControlLost, FrameTooLarge
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import LONGEST_SHOWN, PromptAnswered, PromptUser
from coterie.agents.root_link.channel import SocketChannel, open_channel
from coterie.agents.root_link.remote_services import NO_USER, RemotePrompter
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused
from coterie.agents.root_link.wire_format import Frame, WireMessage, WireRequest
from coterie.framing import FRAME_LIMIT
from coterie.mailbox.envelope import MessageId


class Ping(WireRequest[Spawned], tag="ping", frozen=True):
    """Request with a reply from the handler of a test."""

    text: str = ""


class Keep(WireRequest[None], tag="keep", frozen=True):
    """Request that continues when the requester is cancelled."""

    runs_to_end = True


class Note(WireMessage, tag="note", frozen=True):
    """Message without a reply."""

    text: str


Anything = Ping | Keep | Note
DECODER = msgspec.json.Decoder(Frame[Anything])
SPAWNED = Spawned(name="bob", incarnation=2, report=MessageId("r"))
Handler = Callable[[Anything], Awaitable[object]]


async def forever(_request: Anything) -> object:
    await trio.sleep_forever()


async def reply(_request: Anything) -> object:
    await trio.lowlevel.checkpoint()
    return SPAWNED


@attrs.define(eq=False)
class TwoEnds:
    """Both ends of a channel; the remote end handles requests."""

    near: RequestChannel[Any]
    far: RequestChannel[Any]
    raw: SocketChannel[Frame[Any]]
    """Channel of the local end."""
    _socket: socket.socket
    notes: list[str] = attrs.field(factory=list)
    withdrawn: list[Anything] = attrs.field(factory=list)

    def cut(self) -> None:
        """Close the connection as after a crash of the process."""
        self._socket.shutdown(socket.SHUT_RDWR)

    async def on_message(self, message: Anything) -> None:
        """Record the text."""
        assert isinstance(message, Note)
        self.notes.append(message.text)

    async def on_withdrawn(self, request: Anything) -> None:
        self.withdrawn.append(request)

    async def serve(self, channel: RequestChannel[Anything], handle: Handler) -> None:
        """Serve one end until it is closed."""
        async with trio.open_nursery() as nursery:
            await channel.serve(nursery, self.on_message, handle, self.on_withdrawn)
            nursery.cancel_scope.cancel()
        channel.close()


@asynccontextmanager
async def open_ends(handle: Handler = reply, decoder: Any = DECODER) -> AsyncIterator[TwoEnds]:
    near, far = socket.socketpair()
    streams = [trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in (near, far)]
    with trio.fail_after(10):
        async with open_channel(streams[0], decoder) as one, open_channel(streams[1], decoder) as other:
            ends = TwoEnds(RequestChannel(one), RequestChannel(other), one, near)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ends.serve, ends.near, forever)
                nursery.start_soon(ends.serve, ends.far, handle)
                yield ends
                nursery.cancel_scope.cancel()


async def test_replies_reach_their_requests_in_any_order() -> None:
    async def later(request: Anything) -> object:
        assert isinstance(request, Ping)
        if request.text == "first":
            await second_is_answered.wait()
        return attrs.evolve(SPAWNED, name=request.text)

    """Messages without a reply arrive before them, in order."""
    second_is_answered = trio.Event()

    names: list[str] = []
    async with open_ends(later) as ends, trio.open_nursery() as nursery:
        for text in ("a", "b"):
            ends.near.send(Note(text=text))

        async def ask(text: str) -> None:
            names.append((await ends.near.request(Ping(text=text))).name)
            second_is_answered.set()

        nursery.start_soon(ask, "first")
        nursery.start_soon(ask, "second")
    assert names == ["second", "first"]
    assert ends.notes == ["a", "b"]


@pytest.mark.parametrize(
    "error",
    [
        SpawnRefused("There is no room."),
        BudgetSpent(budget=Decimal("1.50"), spent=Decimal(1), reserve=Decimal("0.7"), scope="agent", name="ann"),
    ],
)
async def test_error_of_a_handler_is_raised_at_the_requester(error: SpawnRefused | BudgetSpent) -> None:
    async def refuse(_request: Anything) -> object:
        raise error

    async with open_ends(refuse) as ends:
        with pytest.raises((SpawnRefused, BudgetSpent)) as raised:
            await ends.near.request(Ping())
        assert type(raised.value) is type(error)
        assert attrs.asdict(raised.value) == attrs.asdict(error)
        assert raised.value.args == error.args


@pytest.mark.parametrize(("request_", "is_withdrawn"), [(Ping(text="x"), True), (Keep(), False)])
async def test_cancelled_request_is_withdrawn_unless_it_runs_to_its_end(request_: Any, *, is_withdrawn: bool) -> None:
    done: list[bool] = []
    may_end = trio.Event()

    async def wait(_request: Anything) -> None:
        await may_end.wait()
        done.append(True)

    async with open_ends(wait) as ends:
        with trio.move_on_after(0.02):
            await ends.near.request(request_)
        await wait_all_tasks_blocked(0.01)
        may_end.set()
        await wait_all_tasks_blocked(0.01)
        assert (ends.withdrawn, done) == (([request_], []) if is_withdrawn else ([], [True]))


async def test_a_reply_after_the_cancellation_is_ignored() -> None:
    may_end = trio.Event()

    async def stubborn(_request: Anything) -> object:
        with trio.CancelScope(shield=True):
            await may_end.wait()
        return SPAWNED

    async with open_ends(stubborn) as ends:
        with trio.move_on_after(0.01):
            await ends.near.request(Ping())
        may_end.set()
        assert await ends.near.request(Ping()) == SPAWNED
        assert ends.withdrawn == []
        ends.raw.send(Frame(cancel=0))  # of a request that was answered
        assert await ends.near.request(Ping()) == SPAWNED


async def test_lost_connection_fails_all_requests_and_withdraws_none() -> None:
    async with open_ends(forever) as ends:
        lost: list[ControlLost] = []

        async def ask() -> None:
            try:
                await ends.near.request(Ping())
            except ControlLost as exc:
                lost.append(exc)

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.01)
            ends.cut()
        assert len(lost) == 2
        with pytest.raises(ControlLost):
            await ends.near.request(Ping())
        assert ends.withdrawn == []


async def test_too_large_message_is_refused_and_the_connection_stays() -> None:
    async with open_ends() as ends:
        with pytest.raises(FrameTooLarge):
            ends.near.send(Note(text="x" * FRAME_LIMIT))
        with pytest.raises(FrameTooLarge):
            await ends.near.request(Ping(text="x" * 200), limit=200)
        assert await ends.near.request(Ping()) == SPAWNED


@pytest.mark.parametrize(
    "frame",
    [
        Frame[Anything](),
        Frame[Anything](body=Ping()),
        Frame[Anything](id=0, body=Note(text="")),
    ],
)
async def test_invalid_frame_ends_the_connection(frame: Frame[Anything]) -> None:
    with pytest.RaisesGroup(ControlLost, flatten_subgroups=True):
        async with open_ends() as ends:
            ends.raw.send(frame)
            await trio.sleep_forever()


async def test_reply_of_the_wrong_type_ends_the_connection() -> None:
    async def garbled(_request: Anything) -> object:
        await trio.lowlevel.checkpoint()
        return 7

    async with open_ends(garbled) as ends:
        with pytest.raises(ControlLost, match="invalid reply to Ping"):
            await ends.near.request(Ping())


QUESTION = Question(
    tool="Write",
    subject="a.txt",
    details={"content": "x" * (LONGEST_SHOWN + 1_234)},
    reason="no rule allows it",
    rules=("Write(a.txt)", "Bash(git push:*)"),
    remedy="a rule",
    agent="scout",
)
PROMPT_DECODER = msgspec.json.Decoder(Frame[PromptUser])


@pytest.mark.parametrize("answer", [AllowOnce(), AllowForSession(), DenyCall("Not now.")])
async def test_prompt_and_answer_survive_encoding(answer: Answer) -> None:
    asked: list[Question] = []

    async def given(request: Any) -> object:
        await trio.lowlevel.checkpoint()
        asked.append(request.question())
        return PromptAnswered.of(answer)

    async with open_ends(given, PROMPT_DECODER) as ends:
        prompter = RemotePrompter(ends.near)
        assert await prompter.ask(QUESTION) == answer
    details = {"content": "x" * LONGEST_SHOWN + "\n... 1,234 more characters"}
    assert asked == [attrs.evolve(QUESTION, details=details)]


def test_stored_form_of_a_prompt_is_unchanged() -> None:
    question = attrs.evolve(QUESTION, details={"content": "x"})
    assert msgspec.json.encode(PromptUser.of(question)) == (
        b'{"word":"ask","call":0,"agent":"scout","tool":"Write","subject":"a.txt","details":{"content":"x"},'
        b'"reason":"no rule allows it","rules":["Write(a.txt)","Bash(git push:*)"],"remedy":"a rule"}'
    )


async def test_all_prompts_are_denied_and_withdrawn_after_the_user_has_left() -> None:
    answers: list[Answer] = []
    async with open_ends(forever, PROMPT_DECODER) as ends:
        prompter = RemotePrompter(ends.near)

        async def ask() -> None:
            answers.append(await prompter.ask(QUESTION))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            prompter.leave()
        assert [*answers, await prompter.ask(QUESTION)] == [DenyCall(NO_USER)] * 2
        await wait_all_tasks_blocked(0.01)
        assert len(ends.withdrawn) == 1
