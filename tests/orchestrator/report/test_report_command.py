"""`coterie report`: output file, refused paths and JSON."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from coterie.orchestrator.gateway.ledger import LEDGER
from tests.orchestrator.cli.command_runner import coterie, printed
from tests.orchestrator.report.html_page import Page
from tests.orchestrator.report.report_sessions import BEGAN, SessionBuilder, fixed_parser

report = partial(coterie, "report")


@pytest.fixture
def builder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionBuilder:
    monkeypatch.chdir(tmp_path)
    return fixed_parser(tmp_path)


def test_report_writes_only_the_named_file(builder: SessionBuilder, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    done = report(builder.session.id[:-2], "-o", "page.html")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "page.html\n", "")
    assert set(tmp_path.iterdir()) - before == {tmp_path / "page.html"}
    assert "Mend the parser." in Page((tmp_path / "page.html").read_bytes()).text()


def test_default_is_a_file_of_the_newest_session_and_a_hyphen_standard_output(
    builder: SessionBuilder, tmp_path: Path
) -> None:
    done = report(builder.session.id, "-o", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    assert Page(done.stdout_bytes).text("agents").startswith("Agents")
    assert not list(tmp_path.glob("*.html"))
    done = report()
    assert (done.exit_code, done.stdout) == (0, f"coterie-{builder.session.id}.html\n")
    assert (tmp_path / f"coterie-{builder.session.id}.html").exists()


def test_report_overwrites_a_report_and_an_empty_file_and_by_force_any_regular_file(
    builder: SessionBuilder, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.touch()
    assert report(builder.session.id, "-o", "page.html").exit_code == 0
    old = page.read_bytes()
    builder.becomes(50, "late", "running")
    builder.write_all()
    assert report(builder.session.id, "-o", "page.html").exit_code == 0
    assert page.read_bytes() != old
    make_text(page)
    assert report(builder.session.id, "-o", "page.html", "--force").exit_code == 0
    assert "Mend the parser." in page.read_text()
    os.mkfifo(tmp_path / "pipe")
    assert report(builder.session.id, "-o", "pipe", "--force").exit_code == 2


def make_text(path: Path) -> None:
    path.write_text("<p>my own page</p>")


@pytest.mark.parametrize(
    ("prepare", "name", "reason"),
    [
        (make_text, "page.html", "page.html exists"),
        (Path.mkdir, "pages", "pages is a directory"),
        (os.mkfifo, "pipe", "pipe is not a regular file"),
        (str, "nowhere/page.html", "directory nowhere does not exist"),
        (str, "", ". is a directory"),
        (str, 300 * "x", f"{300 * 'x'} cannot be checked: File name too long"),
    ],
)
def test_wrong_output_paths_are_refused_in_one_line(
    builder: SessionBuilder, tmp_path: Path, prepare: Callable[[Path], object], name: str, reason: str
) -> None:
    prepare(tmp_path / name)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = report(builder.session.id, "-o", name)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"Error: {reason}")
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_unknown_session_and_json_with_output_are_refused(builder: SessionBuilder) -> None:
    unknown = report("nope")
    assert unknown.exit_code == 2
    assert "'nope'" in unknown.stderr
    both = report(builder.session.id, "--json", "-o", "page.html")
    assert both.exit_code == 2
    assert "--json and --output" in both.stderr


@pytest.mark.parametrize("arguments", [("-o", "page.html"), ("-o", "-"), ("--json",)])
def test_a_damaged_entry_is_reported_and_exits_1(builder: SessionBuilder, arguments: tuple[str, ...]) -> None:
    path = builder.session.directory / LEDGER
    path.write_bytes(path.read_bytes().replace(b'"purpose":"summary"', b'"purpose":"Summary"'))
    done = report(builder.session.id, *arguments)
    assert (done.exit_code, done.stderr.startswith("ledger.jsonl, line 12: ")) == (1, True)
    assert done.stdout


def test_an_unreadable_log_is_an_error_in_one_line(builder: SessionBuilder) -> None:
    log = builder.session.directory / "agents/scout/events.jsonl"
    log.unlink()
    log.mkdir()
    done = report(builder.session.id)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: cannot read {log}: Is a directory; fix it\n"


def test_json_has_the_data_of_the_page(builder: SessionBuilder) -> None:
    found = printed("report", builder.session.id)
    assert found["session"]["id"] == builder.session.id
    assert (found["state"], found["reason"], found["result"]) == ("ended", "completed", "done")
    assert found.keys() >= {"read_at", "first", "last", "letters", "costs", "approvals", "notables", "unread"}
    scout = found["agents"][1]
    assert (scout["name"], scout["parent"], scout["incarnations"]) == ("scout", "main", 2)
    first = {"incarnation": 1, "state": "starting", "since": BEGAN + 9, "until": BEGAN + 10, "what": ""}
    assert scout["stretches"][0] == first
    assert scout["tool_calls"][0]["reason"] == "exit code 1"
    missed = found["requests"][3]
    assert (missed["agent"], missed["missed"], missed["usage"]["read"]) == ("scout", 7_900, 2_000)
    broke = {"cause": "tools", "detail": "Bash changed", "read_before": 9_900, "read_now": 2_000}
    assert missed["broke"] == broke
    assert found["approvals"][1]["answers"][0]["verdict"] == "approved"
