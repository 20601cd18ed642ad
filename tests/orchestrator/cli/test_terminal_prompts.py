"""Permission prompts at a real pseudo-terminal."""

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.orchestrator.cli.views.prompts import TerminalPrompter
from coterie.orchestrator.cli.views.view import View

QUESTION = Question(
    tool="Bash",
    subject="git push \x1b[2K\nsecond",
    reason="no rule allows it",
    rules=("Bash(git push:*)",),
    remedy="a rule",
)


@attrs.define(eq=False)
class Watching(View):
    is_paused: bool = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.is_paused = True
        yield
        self.is_paused = False


@attrs.define(eq=False)
class PromptTerminal:
    master: int
    slave: int
    view: Watching = attrs.field(factory=Watching)

    async def ask(self, *keys: bytes, question: Question = QUESTION) -> tuple[Answer, str]:
        """Type *keys*, each after the previous one was read; return the answer and the output."""
        answers: list[Answer] = []

        async def ask() -> None:
            asker = TerminalPrompter(self.view, Path(os.ttyname(self.slave)))
            answers.append(await asker.ask(question))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                for key in keys:
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    assert self.view.is_paused
                    os.write(self.master, key)
        assert not self.view.is_paused
        return answers[0], self._shown().decode()

    def _shown(self) -> bytes:
        """All output, read up to a mark that is written here."""
        os.write(self.slave, b"\0")
        shown = b""
        while not shown.endswith(b"\0"):
            shown += os.read(self.master, 65_536)
        return shown[:-1]


@pytest.fixture
def terminal() -> Iterator[PromptTerminal]:
    master, slave = os.openpty()
    settings = termios.tcgetattr(slave)
    yield PromptTerminal(master, slave)
    assert termios.tcgetattr(slave) == settings
    os.close(slave)
    os.close(master)


async def test_prompt_shows_the_escaped_call_and_the_rule_and_discards_earlier_keys(terminal: PromptTerminal) -> None:
    _, shown = await terminal.ask(b"y")
    assert shown.replace("\r\n", "\n") == (
        "\nBash needs your permission: no rule allows it\n    git push \\x1b[2K\n    second\n"
        "   y  yes, once\n   s  for this session: Bash(git push:*)\n   n  no\nyes, once\n\n"
    )
    answer, shown = await terminal.ask(b"s", b"y", question=attrs.evolve(QUESTION, rules=()))
    assert (answer, "for this session" in shown) == (AllowOnce(), False), "there is no rule to allow"
    os.write(terminal.master, b"y\ny")
    assert (await terminal.ask(b"n", b"\n"))[0] == DenyCall("")


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ([b"y"], AllowOnce()),
        ([b"Y\n"], AllowOnce()),
        ([b"s"], AllowForSession()),
        ([b"n", b"\n"], DenyCall("")),
        ([b"n", b"Not now\x7f\x7f\x7fyet\n"], DenyCall("Not yet")),
        ([b"\n", b"x", b"\x1b[A", b"yes", b"s"], AllowForSession()),
    ],
)
async def test_keys_answer_the_prompt(terminal: PromptTerminal, keys: list[bytes], answer: Answer) -> None:
    assert (await terminal.ask(*keys))[0] == answer


async def test_cancelled_prompt_restores_the_terminal(terminal: PromptTerminal) -> None:
    with trio.move_on_after(0.02):
        await TerminalPrompter(terminal.view, Path(os.ttyname(terminal.slave))).ask(QUESTION)


async def test_missing_terminal_denies_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file"):
        answer = await TerminalPrompter(View(), path).ask(QUESTION)
        assert isinstance(answer, DenyCall)
        assert answer.reason.startswith("The user could not be asked: ")
