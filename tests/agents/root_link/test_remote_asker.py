"""Questions for the user that travel over a line."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import LONGEST_SHOWN, PromptAnswered, PromptUser, WithdrawPrompt
from coterie.agents.root_link.message import WireMessage
from coterie.agents.root_link.remote_services import NO_USER, RemotePrompter

QUESTION = Question(
    tool="Write",
    subject="a.txt",
    details={"content": "x" * (LONGEST_SHOWN + 1_234)},
    reason="no rule allows it",
    rules=(Rule.parse("Write(a.txt)", "test"), Rule.parse("Bash(git push:*)", "test")),
    remedy="a rule",
    agent="scout",
)


@pytest.mark.parametrize("answer", [AllowOnce(), AllowForSession(), DenyCall("Not now.")])
async def test_a_question_and_its_answer_arrive_as_they_were(answer: Answer) -> None:
    said: list[WireMessage] = []
    asker = RemotePrompter.over(said.append)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await asker.ask(QUESTION))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        [word] = said
        assert isinstance(word, PromptUser)
        asked = word.question()
        assert (asked.tool, asked.subject, asked.agent, asked.rules) == ("Write", "a.txt", "scout", QUESTION.rules)
        assert asked.details["content"].endswith("x\n... 1,234 more characters")
        asker.handle(PromptAnswered.of(word.call + 1, AllowOnce()))  # of nobody's question
        asker.handle(PromptAnswered.of(word.call, answer))
    assert answers == [answer]


async def test_a_question_that_is_not_wanted_any_more_is_taken_back() -> None:
    said: list[WireMessage] = []
    with trio.move_on_after(0.01):
        await RemotePrompter.over(said.append).ask(QUESTION)
    [asked, last] = said
    assert isinstance(asked, PromptUser)
    assert last == WithdrawPrompt(call=asked.call)


async def test_when_nobody_is_there_any_more_all_questions_are_refused() -> None:
    asker = RemotePrompter.over(lambda _: None)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await asker.ask(QUESTION))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        asker.leave()
    assert [*answers, await asker.ask(QUESTION)] == [DenyCall(NO_USER)] * 2
