"""Python API: public names, options of `open_session`, and a live session with a simulated root."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, assert_type

import pytest
import trio
import trio.testing

import coterie
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.messages import RunFailed
from coterie.clock import Clock
from coterie.orchestrator.api import public
from coterie.orchestrator.api.live_session import SessionLiveness, count_existing
from coterie.orchestrator.control.launch_client import RootClient
from coterie.orchestrator.control.requests import (
    ControlAnswer,
    ControlRequest,
    SessionEnded,
    control_address,
    root_message_decoder,
)
from coterie.orchestrator.control.server import open_control_server, open_listener
from coterie.orchestrator.session.root_lock import open_root_record
from coterie.session_directory import SessionDirectory
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer

RENAMED: dict[str, str] = vars(coterie)["_RENAMED"]


def test_every_public_name_exists_and_is_listed() -> None:
    for name in public.__all__:
        assert getattr(coterie, name) is not None
        assert name in dir(coterie)
    with pytest.raises(AttributeError, match="no attribute 'opn_session'"):
        coterie.opn_session  # type: ignore[attr-defined]  # noqa: B018 - which shows that types are not anything


def test_a_renamed_name_gives_the_new_class_and_warns() -> None:
    assert sorted(RENAMED) == [
        *("AgentGlance", "ForSession", "Observed", "Once", "Progress", "Refusal", "Result", "Started", "Text")
    ]
    for old, new in RENAMED.items():
        with pytest.warns(DeprecationWarning, match=rf"^coterie\.{old} is now coterie\.{new}$") as warned:
            assert getattr(coterie, old) is getattr(coterie, new)
        assert [each.filename for each in warned] == [__file__]
        assert old not in dir(coterie)


async def _a_program() -> None:
    """Never run: mypy checks it, as it would a user's."""
    async with coterie.open_session("Go.", team="team.toml", max_budget_usd=1) as session:
        assert_type(session, coterie.LiveSession)
        async with session.events() as events:
            async for observed in events:
                assert_type(observed, coterie.SessionEvent)
                if isinstance(observed.event, coterie.ApprovalAsked):
                    assert_type(observed.event.id, str)
        assert_type((await session.spawn("Look.", name="scout")).incarnation, int)
        assert_type(await session.send("scout", "Look again."), coterie.Receipt)
        assert_type(await session.approvals(), tuple[coterie.Approval, ...])
        assert_type((await session.wait()).cost, Decimal)
    coterie.run_sync("Go.", modle="opus")  # type: ignore[call-arg]


SCRIPT = "default: [{text: Done., times: always}]"


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "lead.toml").write_text('[lead]\nagent = "explore"\n')
    return tmp_path


async def answer(_question: coterie.Question) -> coterie.Answer:
    return coterie.AllowOnce()


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("Go.", {"script": None}, "model: no API key; set ANTHROPIC_API_KEY, or pass script="),
    (" ", {}, "task: the task is empty; pass a task, or session="),
    ("Go.", {"model": "sonet"}, "model: 'sonet' is not a known model; did you mean sonnet"),
    ("Go.", {"project": "nowhere"}, "nowhere is not a directory"),
    ("Go.", {"max_turns": 0}, "open_session: max_turns is 0; it should be a whole number above 0"),
    ("Go.", {"settings": {"agents.at_onec": 3}}, "open_session: there is no setting 'agents.at_onec'; did you mean"),
    ("Go.", {"coordinator": True, "agent": "explore"}, "coordinator: cannot be combined with agent='explore'"),
    ("Go.", {"team": "lead.toml", "agent": "plan"}, "team: the lead of lead.toml has type explore, not 'plan'"),
    ("Go.", {"team": "none.toml"}, "none.toml:1: cannot be read: No such file or directory"),
    ("", {"session": "2026"}, "session: no session's id begins with '2026'; there are no sessions yet"),
    ("", {"session": "2026", "team": "lead.toml"}, "team: the option is only for new sessions"),
    ("Go.", {"on_question": answer, "detached": True}, "on_question: cannot be combined with questions_wait or"),
]


@pytest.mark.parametrize(("task", "options", "reason"), WRONG)
async def test_invalid_options_raise_before_anything_starts(
    task: str, options: dict[str, Any], reason: str, project: Path
) -> None:
    with pytest.raises(coterie.ConfigInvalid) as raised:
        async with coterie.open_session(task, **{"script": "script.yaml", **options}):
            raise AssertionError("it has begun")
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.reason
    assert not (project / "home").exists()


async def test_unknown_option_is_a_type_error_with_a_suggestion(project: Path) -> None:
    wrong: dict[str, Any] = {"modle": "opus"}
    with pytest.raises(TypeError, match=r"^open_session has no option 'modle'; did you mean model"):
        async with coterie.open_session("Go.", **wrong):
            raise AssertionError("it has begun")


async def test_session_is_refused_outside_the_main_thread(project: Path) -> None:
    with pytest.raises(RuntimeError, match="call open_session on the main thread"):
        await trio.to_thread.run_sync(partial(coterie.run_sync, "Go.", script="script.yaml"))
    assert not (project / "home").exists()


PATIENCE = 10.0


@pytest.fixture
async def host() -> AsyncIterator[RootClient]:
    near, far = trio.socket.socketpair()
    with far:
        async with open_channel(trio.SocketStream(near), root_message_decoder) as line:
            yield RootClient(line)


def live(
    session: SessionDirectory, host: RootClient, life: SessionLiveness, past: Counter[str] | None = None
) -> coterie.LiveSession:
    return coterie.LiveSession(session, life, host, past or Counter())


async def test_resumed_session_skips_earlier_events(session: SessionDirectory, host: RootClient) -> None:
    with open_writer(session.directory) as writer:
        writer.write_event(STARTED)
        writer.write_text("user", "Go.")
        writer.write_event(FINISHED)
        past, life = count_existing(session.directory), SessionLiveness()
        writer.write_text("user", "Go on.")
    life.end(SessionEnded(is_done=True))
    opened = live(session, host, life, past)
    for _ in range(2):  # each reader gets every event
        async with opened.events() as events:
            assert [observed.kind async for observed in events] == ["message"]
    with pytest.raises(coterie.SessionFailed, match=r"ended without a result.*: its task is done\.$"):
        await opened.wait()


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (None, ": its process was killed."),
        (RunFailed(reason="the disk is full"), "the disk is full"),
        (SessionEnded(is_done=False, reason="It was stopped."), ": It was stopped."),
    ],
)
async def test_a_session_without_a_result_has_failed(
    session: SessionDirectory, host: RootClient, last: SessionEnded | RunFailed | None, reason: str
) -> None:
    life = SessionLiveness()
    life.end(last)
    with pytest.raises(coterie.SessionFailed) as raised:
        await live(session, host, life).wait()
    assert raised.value.session == session.id
    assert raised.value.reason.endswith(reason)


async def refuse(request: ControlRequest) -> ControlAnswer:
    raise AssertionError(request)


async def test_program_of_an_agent_cannot_act_as_the_user(session: SessionDirectory, host: RootClient) -> None:
    opened = live(session, host, SessionLiveness())
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(control_address(root)) as door, open_control_server(door, refuse):
            asking: dict[str, Callable[[], Awaitable[object]]] = {
                "send": lambda: opened.send("main", "Go."),
                "spawn": lambda: opened.spawn("Go.", name="main"),
                "decide": lambda: opened.decide("main", approve=True),
                "stop": lambda: opened.stop("main"),
            }
            for asked, ask in asking.items():
                with pytest.raises(coterie.RequestRefused) as raised:
                    await ask()
                assert (raised.value.asked, raised.value.subject) == (asked, "main")
                assert raised.value.reason.startswith("only the user can send this request, not an agent")


async def test_invalid_requests_are_refused_before_sending(session: SessionDirectory, host: RootClient) -> None:
    opened = live(session, host, SessionLiveness())
    with pytest.raises(coterie.ConfigInvalid, match=r"^text: the argument is blank"):
        await opened.send("main", " ")
    with pytest.raises(coterie.ConfigInvalid, match=r"^prompt: the argument cannot be encoded as UTF-8"):
        await opened.spawn("\ud800")
    with pytest.raises(coterie.RequestRefused, match="is not a recipient; send the message to each"):
        await opened.send("*", "Go.")
    with pytest.raises(coterie.RequestRefused, match="the limit is 1,048,576 bytes"):
        await opened.send("main", "x" * 1_100_000)
    with pytest.raises(coterie.RequestRefused, match="a rejection needs feedback"):
        await opened.decide("plan-1", approve=False)
    with pytest.raises(coterie.SessionOver, match="the session has ended") as raised:
        await opened.send("main", "Go.")
    assert raised.value.session == session.id
