"""Invalid options of `open_session`: one line with fields, before anything starts."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import coterie

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
    (" ", {}, "task: it is empty; pass a task, or session="),
    ("Go.", {"model": "sonet"}, "model: 'sonet' is not a known model; did you mean sonnet"),
    ("Go.", {"agent": "explorer"}, "did you mean explore"),
    ("Go.", {"project": "nowhere"}, "nowhere is not a directory"),
    ("Go.", {"max_turns": 0}, "open_session: max_turns is 0; it should be a whole number above 0"),
    ("Go.", {"max_budget_usd": -1}, "open_session: max_budget_usd is -1; it should be a number above 0"),
    ("Go.", {"permission_mode": "all"}, "open_session: permissions.mode is 'all'; it should be one of default"),
    ("Go.", {"settings": {"agents.at_onec": 3}}, "open_session: there is no setting 'agents.at_onec'; did you mean"),
    ("Go.", {"coordinator": True, "agent": "explore"}, "coordinator: cannot be combined with agent='explore'"),
    (
        "Go.",
        {"team": "lead.toml", "agent": "plan"},
        "team: the lead of lead.toml has type explore, but agent='plan' was passed",
    ),
    ("Go.", {"team": "none.toml"}, "none.toml:1: cannot be read: No such file or directory"),
    ("", {"session": "2026"}, "session: no session's id begins with '2026'; there are no sessions yet"),
    ("", {"session": "2026", "team": "lead.toml"}, "team: is only for new sessions"),
    (
        "Go.",
        {"on_question": answer, "detached": True},
        "on_question: cannot be combined with questions_wait or detached",
    ),
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


async def test_session_is_refused_outside_the_main_thread(project: Path) -> None:
    with pytest.raises(RuntimeError, match="open_session needs the main thread"):
        await trio.to_thread.run_sync(partial(coterie.run_sync, "Go.", script="script.yaml"))
    assert not (project / "home").exists()
