"""Questions for the user that travel over a line."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.control.asker import NOBODY, RemoteAsker
from coterie.agents.control.asking_words import LONGEST_SHOWN, Answered, Ask, TakeBack
from coterie.agents.control.word import Word
from coterie.agents.permissions import Answer, ForSession, Once, Question, Refusal, Rule

QUESTION = Question(
    tool="Write",
    subject="a.txt",
    details={"content": "x" * (LONGEST_SHOWN + 1_234)},
    reason="no rule allows it",
    rules=(Rule.parse("Write(a.txt)", "test"), Rule.parse("Bash(git push:*)", "test")),
    remedy="a rule",
    agent="scout",
)


@pytest.mark.parametrize("answer", [Once(), ForSession(), Refusal("Not now.")])
async def test_a_question_and_its_answer_arrive_as_they_were(answer: Answer) -> None:
    said: list[Word] = []
    asker = RemoteAsker.over(said.append)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await asker.ask(QUESTION))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        [word] = said
        assert isinstance(word, Ask)
        asked = word.question()
        assert (asked.tool, asked.subject, asked.agent, asked.rules) == ("Write", "a.txt", "scout", QUESTION.rules)
        assert asked.details["content"].endswith("x\n... 1,234 more characters")
        asker.hear(Answered.of(word.call + 1, Once()))  # of nobody's question
        asker.hear(Answered.of(word.call, answer))
    assert answers == [answer]


async def test_a_question_that_is_not_wanted_any_more_is_taken_back() -> None:
    said: list[Word] = []
    with trio.move_on_after(0.01):
        await RemoteAsker.over(said.append).ask(QUESTION)
    [asked, last] = said
    assert isinstance(asked, Ask)
    assert last == TakeBack(call=asked.call)


async def test_when_nobody_is_there_any_more_all_questions_are_refused() -> None:
    asker = RemoteAsker.over(lambda _: None)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await asker.ask(QUESTION))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        asker.leave()
    assert [*answers, await asker.ask(QUESTION)] == [Refusal(NOBODY)] * 2
