"""Permission prompts over a channel."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import LONGEST_SHOWN, PromptAnswered, PromptUser
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.remote_services import NO_USER, RemotePrompter
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.agents.root_link.wire_format import Frame

QUESTION = Question(
    tool="Write",
    subject="a.txt",
    details={"content": "x" * (LONGEST_SHOWN + 1_234)},
    reason="no rule allows it",
    rules=("Write(a.txt)", "Bash(git push:*)"),
    remedy="a rule",
    agent="scout",
)
decoder = msgspec.json.Decoder(Frame[PromptUser])


@attrs.define(eq=False)
class User:
    """User at the other end of the channel."""

    _answer: Callable[[], Awaitable[Answer]]
    asked: list[Question] = attrs.field(factory=list)
    withdrawn: list[Question] = attrs.field(factory=list)

    async def answer(self, request: PromptUser) -> PromptAnswered:
        """Return the answer of the test."""
        self.asked.append(request.question())
        return PromptAnswered.of(await self._answer())

    async def withdraw(self, request: PromptUser) -> None:
        """Record the withdrawn prompt."""
        self.withdrawn.append(request.question())

    async def ignore(self, _message: PromptUser) -> None:
        """Ignore all messages."""


@asynccontextmanager
async def open_prompter(user: User) -> AsyncIterator[RemotePrompter]:
    near, far = (trio.SocketStream(end) for end in trio.socket.socketpair())
    with trio.fail_after(10):
        async with open_channel(near, decoder) as one, open_channel(far, decoder) as other:
            channel: RequestChannel[PromptUser] = RequestChannel(one)
            served: RequestChannel[PromptUser] = RequestChannel(other)
            handlers = user.ignore, user.answer, user.withdraw
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served.serve, nursery, *handlers)
                nursery.start_soon(channel.serve, nursery, *handlers)
                yield RemotePrompter(channel)
                nursery.cancel_scope.cancel()


async def never() -> Answer:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize("answer", [AllowOnce(), AllowForSession(), DenyCall("Not now.")])
async def test_prompt_and_answer_survive_encoding(answer: Answer) -> None:
    async def given() -> Answer:
        await trio.lowlevel.checkpoint()
        return answer

    user = User(given)
    async with open_prompter(user) as prompter:
        assert await prompter.ask(QUESTION) == answer
    [asked] = user.asked
    assert (asked.tool, asked.subject, asked.agent, asked.rules) == ("Write", "a.txt", "scout", QUESTION.rules)
    assert asked.details["content"].endswith("x\n... 1,234 more characters")


def test_stored_form_of_a_prompt_is_unchanged() -> None:
    question = attrs.evolve(QUESTION, details={"content": "x"})
    assert msgspec.json.encode(PromptUser.of(question)) == (
        b'{"word":"ask","call":0,"agent":"scout","tool":"Write","subject":"a.txt","details":{"content":"x"},'
        b'"reason":"no rule allows it","rules":["Write(a.txt)","Bash(git push:*)"],"remedy":"a rule"}'
    )


async def test_cancelled_prompt_is_withdrawn() -> None:
    user = User(never)
    async with open_prompter(user) as prompter:
        with trio.move_on_after(0.02):
            await prompter.ask(QUESTION)
        await wait_all_tasks_blocked(0.01)
        assert user.withdrawn == user.asked != []


async def test_all_prompts_are_denied_after_the_user_has_left() -> None:
    answers: list[Answer] = []
    async with open_prompter(User(never)) as prompter:

        async def ask() -> None:
            answers.append(await prompter.ask(QUESTION))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            prompter.leave()
        assert [*answers, await prompter.ask(QUESTION)] == [DenyCall(NO_USER)] * 2
