"""`coterie serve` as users run it: a process with signals, pipes and a port."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from coterie.orchestrator.processes.api_server_process import ApiServerFailed, open_api_server
from tests.embedded_server import ECHO

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-P", "-m", "coterie", "serve")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.yaml"
    path.write_text(ECHO)
    return path


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--json", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_the_published_code(number: signal.Signals, status: int) -> None:
    with serving() as (process, _):
        process.send_signal(number)
        assert process.wait(10) == status


def test_it_ends_when_its_standard_input_closes() -> None:
    with serving("--while-stdin-open") as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


def test_it_does_not_outlive_a_killed_parent(script: Path) -> None:
    code = f"""
import trio
from pathlib import Path
from coterie.clock import Clock
from coterie.orchestrator.processes.api_server_process import open_api_server as open_server
async def main():
    async with open_server(Path({str(script)!r})) as server:
        print(server.pid, flush=True)
        await trio.sleep_forever()
trio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    server.wait(10)
    assert not server.is_running()


async def test_leaving_the_block_reaps_a_server_that_ignores_signals(script: Path) -> None:
    with trio.fail_after(20):
        async with open_api_server(script) as server:
            os.kill(server.pid, signal.SIGSTOP)
    assert not psutil.pid_exists(server.pid)


async def test_failed_start_has_its_reason(tmp_path: Path) -> None:
    with trio.fail_after(20), pytest.raises(ApiServerFailed, match=r"missing\.yaml"):
        async with open_api_server(tmp_path / "missing.yaml"):
            pass


def test_unusable_script_or_port_is_one_line(tmp_path: Path, script: Path) -> None:
    broken = tmp_path / "broken.yaml"
    reasons = {
        "default: [{txt: hello}]": "line 1",
        "default:\n  - text: hello\n  - stop: never\n": "line 3",
        "default:\n  - {text: [}\n": "line 2",
    }
    for text, line in reasons.items():
        broken.write_text(text)
        done = run("--script", str(broken))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"Error: {broken}, {line}: ")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("--port", str(port), "--script", str(script))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: port {port} is in use; choose another with --port, or --port 0 for a free one\n"


def test_plain_output_explains_the_use_and_verbose_prints_each_request() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "--port", "0", "-v"], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address, variable, control = [process.stdout.readline() for _ in range(3)]
        assert "ANTHROPIC_BASE_URL=http://127.0.0.1:" in variable
        assert "x-coterie-token" in control
        assert address.startswith("Messages API on http://127.0.0.1:")
        [port] = re.findall(r"127\.0\.0\.1:(\d+)", address)
        with socket.create_connection(("127.0.0.1", int(port))) as peer:
            peer.sendall(b"GET /v1/weather HTTP/1.0\r\n\r\n")
            assert process.stderr.readline().startswith("   1  404  /v1/weather  -  not_found_error")
        process.terminate()
