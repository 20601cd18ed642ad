"""Sessions, memories and settings written by version 0.1.0 open as before, through the command line."""

import hashlib
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coterie.session_directory import TRANSCRIPT, SessionDirectory, project_slug
from tests.processes.project_shell import BYPASS, PATIENCE, ProjectShell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0_1"

FINISHED = "20261118-131124-59b3b3"
KILLED = "20261118-131138-97caf1"
COMPACTED = "20261118-131155-5eaddb"
PLANNED = "20261118-131224-0b63a8"
DREAMED = "20261118-131311-bb42cf"
DREAM = "20261118-131322-cfed"
WRITTEN = 1795007660.0
"""Time at which the fixtures were complete, in seconds since 1970: the clock of the commands starts here."""

WAITING_ID = "01a1eec8-e284-783b-a6e4-f38af9e7ab38"
WAITING_TEXT = "The number is 4. Write it to count.txt: ½ done."

ANN = "---\nname: Ann\ndescription: what Ann drinks\ntype: user\n---\nAnn likes tea.\n"
PRICES = "---\nname: Prices\ndescription: how prices are shown\ntype: project\n---\nPrices are shown with tax.\n"
CHANGED_PRICES = PRICES.replace("with tax", "without tax")
STAGING = (
    "---\nname: Staging server\ndescription: on which port the staging server listens\ntype: project\n---\n"
    "The staging server listens on port 8080.\n"
)


class Unpacked(ProjectShell):
    """A private copy of the fixtures in which commands run."""

    def run(self, *arguments: str, code: int = 0) -> str:
        """Return the standard output of a command that ends with *code*."""
        done = self.coterie(*arguments)
        assert done.returncode == code, done.stderr
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the JSON output of a command."""
        return json.loads(self.run(*arguments, "--json", code=code))

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the output of a command that prints a JSON object on each line."""
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]

    def transcript(self, session: str, agent: str) -> Path:
        return SessionDirectory.find(session).agent_directory(agent) / TRANSCRIPT


@pytest.fixture
def unpacked(tmp_path: Path, home: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Unpacked:
    """Unpack the fixtures, with the project in the directory of this test, and without keys and settings."""
    del runtime
    project = tmp_path / "project"
    shutil.copytree(FIXTURES / "home", home)
    shutil.copytree(FIXTURES / "project", project)
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (home / "projects/PROJECT").rename(home / "projects" / project_slug(project))
    for path in home.glob("projects/*/sessions/*/session.json"):
        path.write_text(path.read_text().replace("@PROJECT@", str(project)))
        for empty in ("scratch", "mail/outgoing"):  # git keeps no empty directories
            (path.parent / empty).mkdir(exist_ok=True)
    (tmp_path / "clock").write_text(f"{WRITTEN - time.time()!r}\n")
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "COTERIE_")) and name != "COTERIE_HOME"]:
        monkeypatch.delenv(name)
    for name, directory in (("HOME", ""), ("XDG_CACHE_HOME", "cache"), ("COTERIE_CLOCK", "clock")):
        monkeypatch.setenv(name, str(tmp_path / directory))
    return Unpacked(project)


def test_list_shows_state_agents_and_exact_cost_of_each_session(unpacked: Unpacked) -> None:
    listed = {each["session"]: each for each in unpacked.json("list")["sessions"]}
    facts = {
        id_: (each["state"], each["reason"], each["starts"], each["cost_usd"], [one["name"] for one in each["agents"]])
        for id_, each in listed.items()
    }
    assert facts == {
        FINISHED: ("ended", "completed", 1, "0.0639166", ["main", "facts", "helper"]),
        KILLED: ("interrupted", None, 1, "0.0509019", ["main", "scribe"]),
        COMPACTED: ("ended", "completed", 2, "0.0458701", ["main"]),
        PLANNED: ("interrupted", None, 1, "0.0482180", ["main", "cook"]),
        DREAMED: ("ended", "completed", 1, "0.0312779", ["main"]),
    }
    assert listed[KILLED]["task"] == "Count the lines of notes.md and have the number written down."
    assert {each["project"] for each in listed.values()} == {str(unpacked.project)}
    assert unpacked.json("doctor")["findings"] == []


def test_logs_show_the_events_and_request_bytes_of_version_0_1(unpacked: Unpacked) -> None:
    """A later version may add fields to an event, and new kinds of events."""
    expected = [json.loads(line) for line in (FIXTURES / "expected/finished-events.jsonl").read_text().splitlines()]
    assert len(expected) == 107
    kinds = {event["kind"] for event in expected}
    shown = [event for event in unpacked.lines("logs", FINISHED) if event["kind"] in kinds]
    assert len(shown) == len(expected)
    for event, old in zip(shown, expected, strict=True):
        assert {name: event.get(name) for name in old} == old
    body = unpacked.run("logs", FINISHED, "--agent", "facts", "--turn", "4", "--rendered", "--bytes")
    assert digest(body) == "245f1118f3bb7f5851d2258ed8d698eb89dceb094f76e5231c21019255d363d5"


def digest(body: str) -> str:
    """Return the SHA-256 of a request."""
    return hashlib.sha256(body.encode()).hexdigest()


def test_costs_report_tasks_and_mail_of_a_finished_session_are_as_recorded(unpacked: Unpacked) -> None:
    costs = unpacked.json("costs", FINISHED)
    assert [(row["name"], row["parent"], row["requests"], row["cost_usd"]) for row in costs["rows"]] == [
        ("main", None, 7, "0.0320768"),
        ("facts", "main", 4, "0.0054376"),
        ("helper", "main", 4, "0.0264022"),
    ]
    assert costs["total"]["cost_usd"] == "0.0639166"
    assert costs["total"]["usage"] == {"input": 0, "read": 122916, "write_5m": 19386, "write_1h": 0, "output": 316}
    assert (costs["without_cache_usd"], costs["damaged"]) == ("0.2877640", [])

    report = unpacked.json("report", FINISHED)
    assert report["result"] == "The notes are right, 4 lines and 14 words."
    assert [len(report[name]) for name in ("agents", "letters", "requests")] == [3, 6, 15]

    [task] = unpacked.json("tasks", "list", "--session", FINISHED)
    assert (task["subject"], task["state"], task["owner"]) == (
        "Check the facts",
        "done",
        {"name": "facts", "incarnation": 1},
    )
    assert [(each["by"], each["what"]) for each in task["history"]] == [
        ("main#1", "created"),
        ("facts#1", "claimed"),
        ("facts#1", "done"),
    ]
    mail = unpacked.json("mail", "list", "--session", FINISHED)
    assert {each["name"]: each["messages"] for each in mail} == {"main": 2, "facts": 0, "helper": 0}


@contextmanager
def open_server(unpacked: Unpacked, *model: str) -> Iterator[str]:
    """Serve a script with the clock of the fixtures, and yield the URL."""
    options = ("--port", "0", "--json", *model, "--clock", str(unpacked.project.parent / "clock"))
    with unpacked.start("serve", *options) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def send(url: str, body: str) -> None:
    """Send the request *body* to the server, as the SDK would."""
    headers = {
        "content-type": "application/json",
        "x-api-key": "any",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "context-management-2025-06-27",
    }
    request = urllib.request.Request(f"{url}/v1/messages?beta=true", data=body.encode(), headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310 - loopback
        assert b"message_stop" in response.read()


def test_killed_session_resumes_with_equal_prefix_and_delivers_waiting_mail_once(
    unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last request before the kill fills the server's cache; the first one of the resumed lead hits it fully."""
    [waiting] = unpacked.lines("mail", "read", "scribe", "-s", KILLED)
    assert (waiting["id"], waiting["body"], waiting["sender"]["name"]) == (WAITING_ID, WAITING_TEXT, "main")
    last = unpacked.run("logs", KILLED, "--turn", "4", "--rendered", "--bytes")
    assert digest(last) == "6993e086ed5f5d7aebf25d28b17d499a9b76f6c8bcfbaf9ab448ee7fa9eeb8a1"
    before = {agent: unpacked.transcript(KILLED, agent).read_bytes() for agent in ("main", "scribe")}

    write = {"Bash": {"command": "echo 4 >> count.txt; echo it is in the file"}}
    model = unpacked.model(
        json.dumps(
            {
                "default": [{"text": "Cached.", "times": "always"}],
                "main": [{"when": {"unheard": "never said"}, "text": "The number is written down."}],
                "scribe": [
                    {"when": {"heard": WAITING_TEXT, "unheard": "it is in the file"}, "tools": [write]},
                    {"when": {"heard": "it is in the file"}, "text": "Written."},
                    {"when": {"unheard": WAITING_TEXT}, "text": "I was told no number."},
                ],
            }
        )
    )
    with open_server(unpacked, *model) as url:
        send(url, last)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        result = unpacked.run("resume", KILLED, "-p", *BYPASS)
    assert result == "The number is written down.\n"
    assert (unpacked.project / "count.txt").read_text() == "4\n"

    events = unpacked.lines("logs", KILLED)
    delivered = [event["ids"] for event in events if event["agent"] == "scribe" and event["kind"] == "delivered"]
    assert delivered == [[WAITING_ID]]
    received = [e for e in events if e["agent"] == "scribe" and e["kind"] == "message" and e["role"] == "user"]
    assert json.dumps(received, ensure_ascii=False).count(WAITING_TEXT) == 1
    replies = [event for event in events if event["agent"] == "main" and event["kind"] == "replied"]
    assert replies[4]["turn"] == 5
    assert replies[4]["usage"]["read"] == sum(replies[3]["usage"][name] for name in ("read", "write_5m"))
    for agent, content in before.items():
        assert unpacked.transcript(KILLED, agent).read_bytes().startswith(content)
    first, second = unpacked.json("tasks", "list", "--session", KILLED)
    assert [each["by"] for each in first["history"]][:3] == ["user", "main#1", "main#2"]
    assert (second["subject"], second["state"]) == ("Write the count down", "blocked")


def test_compacted_session_resumes_with_notes_and_searchable_transcript(unpacked: Unpacked) -> None:
    stored, compacted = unpacked.lines("logs", COMPACTED, "--dropped")
    assert (stored["kind"], stored["characters_before"], stored["characters_after"]) == ("results_stored", 33892, 2302)
    assert (compacted["kind"], compacted["by"], compacted["left"], compacted["kept"]) == ("compacted", "notes", 15, 11)
    assert (compacted["turn"], compacted["last_line"]) == (14, 112)
    layers = unpacked.json("logs", COMPACTED, "--layers")
    assert [turn["total"] for turn in layers["turns"]] == [9273, *range(9866, 10087, 20)]

    search = {"tools": [{"SearchTranscript": {"pattern": "step [23]$"}}]}
    found = {"text": "Found: {{last_tool_result}}", "times": "always"}
    model = unpacked.model(json.dumps({"main": [{**search, "times": 14}, found]}))
    result = unpacked.run("resume", COMPACTED, "Which steps were first?", "-p", *model)
    assert "step 2" in result
    assert "step 3" in result
    request = json.loads(unpacked.run("logs", COMPACTED, "--turn", "14", "--rendered", "--bytes"))
    first = "\n".join(block["text"] for block in request["messages"][0]["content"])
    assert "# Current State\nThe numbers were printed." in first
    assert "<user-message>\nPrint the numbers from 1 to 7000.\n</user-message>" in first
    texts = [block for message in request["messages"] for block in message["content"] if block["type"] == "text"]
    assert [text["text"] for text in texts][-2:] == ["All numbers were printed.", "Which steps were first?"]


def test_open_plan_is_approved_after_resume_and_dead_letter_is_kept(unpacked: Unpacked) -> None:
    [asked] = unpacked.json("approvals", "list", PLANNED)["approvals"]
    assert (asked["id"], asked["state"], asked["agent"], asked["approver"]) == ("plan-1", "open", "cook", "human")
    assert (asked["plan"], asked["files"], asked["doubt"]) == ("Add the line bread to menu.txt.", ["menu.txt"], None)
    [dead] = unpacked.json("mail", "dead", "--session", PLANNED)
    assert (dead["number"], dead["reason"], dead["mailbox"]) == (1, "recipient_ended", "cook")
    assert dead["envelope"]["body"] == "Butter as well, please."

    plan = {"ExitPlanMode": {"plan": asked["plan"], "files": asked["files"]}}
    menu = "soup\nstew\nbread\n"
    cook = [
        {"tools": [plan], "times": 3},
        {"tools": [{"Read": {"file_path": "menu.txt"}}]},
        {"tools": [{"Write": {"file_path": "menu.txt", "content": menu}}]},
        {"text": "It is on the menu.", "times": "always"},
    ]
    model = unpacked.model(json.dumps({"main": [{"text": "I wait.", "times": "always"}], "cook": cook}))
    with unpacked.start("resume", PLANNED, "--permission-mode", "acceptEdits", *model, "-p") as resumed:
        approve = ("approvals", "approve", "plan-1", "--session", PLANNED)
        assert unpacked.becomes_true(lambda: unpacked.coterie(*approve).returncode == 0)
        _, errors = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, errors
    assert (unpacked.project / "menu.txt").read_text() == menu
    [decided] = unpacked.json("approvals", "list", PLANNED, "--all")["approvals"]
    assert (decided["id"], decided["state"], decided["by"], decided["doubt"]) == ("plan-1", "approved", "human", None)


def test_memory_and_its_history_are_read_and_recorded_changes_are_undone(unpacked: Unpacked) -> None:
    log = unpacked.json("memory", "log")
    changes = [(each["id"], each["action"], each["path"], each["author"]["by"], each["undoes"]) for each in log]
    assert changes == [
        ("6", "added", "ann.md", "outside", None),
        ("5", "changed", "staging-server.md", "dream", None),
        ("4", "changed", "prices.md", "user", "3"),
        ("3", "changed", "prices.md", "agent", None),
        ("2", "added", "prices.md", "agent", None),
        ("1", "added", "staging-server.md", "agent", None),
    ]
    assert [log[3][side] for side in ("before", "after")] == [PRICES, CHANGED_PRICES]
    assert log[3]["author"]["why"] == "Remember where staging listens and how prices are shown."

    unpacked.run("memory", "undo", "4")
    assert unpacked.json("memory", "show", "prices")["text"] == CHANGED_PRICES
    check = unpacked.json("memory", "check", code=1)
    assert [(each["path"], each["kind"]) for each in check["findings"]] == [("ann.md", "orphan")]
    assert check["pollution"]["memories"] == 3
    [recalled] = unpacked.json("memory", "recall", "--local", "staging port")["memories"]
    assert recalled["path"] == "staging-server.md"


def test_deletion_of_a_dream_waits_and_is_applied_and_undone(unpacked: Unpacked) -> None:
    [dream] = unpacked.json("memory", "dream", "--list")
    assert (dream["id"], dream["session"], dream["cost_usd"]) == (DREAM, DREAMED, "0.0312779")
    hunks = [(each["path"], hunk["kind"], hunk["state"]) for each in dream["files"] for hunk in each["hunks"]]
    assert hunks == [("ann.md", "deletion", "waiting"), ("staging-server.md", "addition", "applied")]
    unpacked.run("memory", "dream", "--apply", DREAM)
    assert [each["path"] for each in unpacked.json("memory", "list")] == ["prices.md", "staging-server.md"]
    undone = unpacked.json("memory", "undo", f"dream-{DREAM}")
    assert {each["path"]: each["after"] for each in undone} == {"ann.md": ANN, "staging-server.md": STAGING}
    texts = {path.name: path.read_text() for path in unpacked.project.parent.glob("home/projects/*/memory/[a-z]*.md")}
    assert texts == {"ann.md": ANN, "prices.md": PRICES, "staging-server.md": STAGING}


def test_agent_memory_in_each_scope_is_read(unpacked: Unpacked) -> None:
    listed = unpacked.json("memory", "list", "--all")
    assert [(each["scope"], each["agent"], each["name"], each["bytes"]) for each in listed] == [
        ("auto", None, "Ann", 73),
        ("auto", None, "Prices", 96),
        ("auto", None, "Staging server", 169),
        ("user", "sage", "Learnt by sage", 96),
        ("project", "clerk", "Learnt by clerk", 99),
        ("local", "keeper", "Learnt by keeper", 102),
    ]
    shown = unpacked.json("memory", "show", "learnt", "--agent", "keeper")
    assert shown["body"] == "The keeper counts to 3."
    assert (shown["last_change"]["id"], shown["last_change"]["author"]["agent"]) == ("1", "keeper")


def test_settings_hooks_definitions_and_team_file_are_read(unpacked: Unpacked) -> None:
    hooks = [(each["event"], each["owner"], each["runs"]) for each in unpacked.json("hooks", "list")["hooks"]]
    assert hooks == [("SessionStart", "user", True), ("PreToolUse", "project", True)]
    agents = {each["name"]: each for each in unpacked.json("agents", "list")}
    assert (agents["counter"]["scope"], agents["counter"]["tools"]) == ("project", ["Read", "Grep"])
    assert {kind: agents[kind]["memory"] for kind in ("sage", "clerk", "keeper")} == {
        "sage": "user",
        "clerk": "project",
        "keeper": "local",
    }
    team = unpacked.json("team", "check", "team.toml")
    assert (team["flaws"], team["team"]["name"]) == ([], "tellers")
    assert [(each["name"], each["budget_usd"]) for each in team["team"]["members"]] == [("scribe", "1.25")]
    assert [(each["key"], each["blocked_by"]) for each in team["team"]["tasks"]] == [
        ("count", []),
        ("write", ["count"]),
    ]
