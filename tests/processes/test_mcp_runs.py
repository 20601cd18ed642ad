"""MCP servers in real sessions: real servers, real agents, and recovery after kills."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from coterie.agents.events.agent_events import ToolEnded
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import McpChanged
from coterie.orchestrator.events.session_reader import read_session
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow

PROBE = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_probe_server.py"))]}
TIME = {"command": sys.executable, "args": ["-P", "-m", "mcp_server_time"]}


class Servers(ProjectShell):
    """Project with MCP servers."""

    def configure(self, *, own: bool = True, **servers: Any) -> Path:
        """Write *servers* into the user's file, or into the project's."""
        path = self.project.parent / "home/mcp.json" if own else self.project / ".mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}, indent=1))
        return path

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a session whose model follows *script*."""
        return self.coterie("run", "Go.", *self.model(script), *(arguments or BYPASS))

    def calls(self) -> list[ToolEnded]:
        """Return the finished calls of MCP tools."""
        return [event for event in self.events(ToolEnded) if event.name.startswith("mcp__")]


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> Servers:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-never-tell")
    place = Servers(project)
    # Generous timeouts for a busy machine; only tests of timeouts have short ones.
    place.write("../home/settings.toml", "[mcp]\nstart_seconds = 60.0\n")
    return place


def calling(tool: str, arguments: str = "{}") -> str:
    """Return a script with one call, whose result the model repeats."""
    return f'default: [{{tools: [{{{tool}: {arguments}}}]}}, {{text: "It said {{{{last_tool_result}}}}"}}]'


def test_a_published_server_is_used_and_its_errors_reach_the_model(place: Servers) -> None:
    place.configure(time=TIME)
    call = "{mcp__time__get_current_time: {timezone: %s}}"
    calls = f"{call % 'Europe/Paris'}, {call % 'Nowhere'}"
    done = place.run(f'default: [{{tools: [{calls}]}}, {{text: "{{{{tool_result.0}}}} {{{{tool_result.1}}}}"}}]')
    assert done.returncode == 0
    assert '"timezone": "Europe/Paris"' in done.stdout
    assert "Invalid timezone" in done.stdout
    assert sorted(call.is_error for call in place.calls()) == [False, True]
    [event] = place.events(McpChanged)
    assert (event.server, event.state) == ("time", "connected")
    assert place.has_no_processes()


SHARING = """
main:
  - tools: [{mcp__probe__whoami: {}}, {mcp__probe__environment: {name: ANTHROPIC_API_KEY}}]
  - tools: [{Agent: {description: look, prompt: Look., name: scout}}]
  - tools: [{Agent: {description: look, prompt: Look., subagent_type: fork, name: twin}}]
  - {text: done, times: always}
scout: [{tools: [{mcp__probe__whoami: {}}]}, {text: "{{last_tool_result}}"}]
twin: [{tools: [{mcp__probe__whoami: {}}]}, {text: "{{last_tool_result}}"}]
"""


def results(place: Servers, agent: str) -> str:
    """Return the transcript of *agent* as text."""
    return conversation(place.session, agent).prefix_bytes().decode()


def test_a_lead_a_subagent_and_a_fork_share_one_connection(place: Servers) -> None:
    place.configure(probe=PROBE)
    done = place.run(SHARING)
    assert done.returncode == 0, done.stderr
    [event] = place.events(McpChanged)
    assert len(place.calls()) == 4
    assert "(unset)" in results(place, "main"), "a server gets no key of the user"
    for agent in ("main", "scout", "twin"):
        assert f"process {event.pid}" in results(place, agent)
    assert "## probe\\n\\nAsk whoami first." in results(place, "main")


def test_server_killed_during_a_call_is_named_and_connected_again(place: Servers) -> None:
    place.configure(probe={**PROBE, "env": {"PROBE_SECRET": "hunter2-hunter2"}})
    script = """
default:
  - tools: [{mcp__probe__die: {words: "out of hunter2-hunter2"}}]
  - text: "{{last_tool_result}}"
    tools: [{mcp__probe__whoami: {}}]
  - text: "{{last_tool_result}}"
"""
    done = place.run(script)
    first, *_ = done.stdout.splitlines()
    assert "MCP server probe was lost during this call: its process was ended by SIGKILL" in first
    assert "out of ***" in first
    states = [(event.state, event.pid) for event in place.events(McpChanged)]
    assert [state for state, _ in states] == ["connected", "lost", "connected"]
    assert f"process {states[2][1]}" in done.stdout
    assert "disconnected: its process was ended by SIGKILL" in done.stderr
    files = [path for path in place.session.directory.rglob("*") if path.is_file() and "main" not in path.parts]
    assert not [path for path in files if b"hunter2-hunter2" in path.read_bytes()]


def test_invalid_servers_are_reported_and_the_run_continues(place: Servers) -> None:
    flood = {"command": sys.executable, "args": ["-c", "while True: print('hello' * 100)"]}
    ends = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence')"]}
    old = {"type": "sse", "url": "http://x"}
    path = place.configure(probe={**PROBE, "colour": "red"}, old=old, flood=flood, ends=ends)
    done = place.run(calling("mcp__probe__whoami"))
    assert (done.returncode, done.stdout[:15]) == (0, "It said process")
    assert f"{path}:8: probe has a key 'colour' that is not known and is ignored" in done.stderr
    assert "old is of the type sse" in done.stderr
    assert "MCP server ends failed to connect: its process ended with status 1: no licence" in done.stderr
    assert "MCP server flood failed to connect: the server wrote over 1,000 lines" in done.stderr
    assert place.has_no_processes()


def test_project_server_waits_for_approval_again_when_its_content_changes(place: Servers) -> None:
    begun = place.project / "begun"
    starts = {"command": "sh", "args": ["-c", f"touch {begun}; exec {sys.executable} {PROBE['args'][0]}"]}
    place.configure(own=False, probe=starts)
    assert place.coterie("mcp", "approve", "probe").returncode == 0
    assert "process" in place.run(calling("mcp__probe__whoami")).stdout
    begun.unlink()
    place.configure(own=False, probe={**starts, "env": {"A": "b"}})
    assert "waits for your approval" in place.run(calling("mcp__probe__whoami")).stderr
    assert not begun.exists()


def test_mcp_calls_follow_permissions_and_rules(place: Servers) -> None:
    place.configure(probe=PROBE)
    place.write(".coterie/settings.toml", '[permissions]\nallow = ["mcp__probe__whoami"]\ndeny = ["mcp__probe__die"]\n')
    tools = "{mcp__probe__environment: {name: A}}, {mcp__probe__whoami: {}}, {mcp__probe__die: {words: x}}"
    results = " | ".join(f"{{{{tool_result.{number}}}}}" for number in range(3))
    script = f'default: [{{tools: [{tools}]}}, {{text: "{results}"}}]'
    asked, allowed, denied = place.run(script, "--permission-mode", "default").stdout.split(" | ")
    assert "mcp__probe__environment needs the user's permission" in asked
    assert allowed.startswith("process")
    assert denied.strip() == "The rule mcp__probe__die denies this call."


def prefix(place: Servers, agent: str) -> bytes:
    """Return the fixed start of every request of *agent*: its model and its tools."""
    return conversation(place.session, agent).prefix_bytes().partition(b'"system":')[0]


def test_resumed_session_sends_identical_tools_when_its_servers_list_others(place: Servers) -> None:
    place.configure(probe=PROBE)
    assert "It said process" in place.run(calling("mcp__probe__whoami")).stdout
    before = prefix(place, "main")
    assert b"mcp__probe__whoami" in before
    listing = (place.session.directory / "mcp.json").read_bytes()
    place.configure(time=TIME)
    script = """
main:
  - {text: never, times: 2}
  - tools: [{mcp__probe__whoami: {}}]
  - text: "{{last_tool_result}}"
    tools: [{Agent: {description: look, prompt: Look., name: scout}}]
  - {text: done, times: always}
scout: [{text: I have seen nothing.}]
"""
    resumed = place.coterie("resume", place.session.id, "Again.", *place.model(script), *BYPASS)
    assert "The MCP server probe is not connected in this run of the session." in resumed.stdout
    assert "MCP server time: has no tools in this session, which started without it" in resumed.stderr
    assert prefix(place, "main") == before
    assert prefix(place, "scout") == before
    assert (place.session.directory / "mcp.json").read_bytes() == listing


OWN = f"""---
name: prober
description: Probes.
tools: Read
mcpServers:
  - {{inner: {{command: {sys.executable}, args: [{PROBE["args"][0]}]}}}}
---
Probe.
"""
INNER = """
main:
  - tools: [{mcp__inner__whoami: {}}]
  - text: "{{last_tool_result}}"
    tools: [{Agent: {description: look, prompt: Look., subagent_type: prober, name: scout}}]
  - text: "{{last_tool_result}}"
scout: [{tools: [{mcp__inner__whoami: {}}]}, {tools: [{mcp__probe__whoami: {}}]}, {text: done}]
"""


@pytest.mark.soak
def test_server_of_a_definition_is_only_for_its_agent_type(place: Servers) -> None:
    place.configure(probe=PROBE)
    place.write(".coterie/agents/prober.md", OWN)
    waits = place.run("default: [{text: done}]")
    assert "the MCP server inner waits for your approval" in waits.stderr
    assert place.coterie("mcp", "approve", "inner").returncode == 0
    done = place.run(INNER)
    assert "Only other agent types may use this MCP server" in done.stdout
    session = max(place.project.parent.glob("home/projects/*/sessions/*"))
    told = list(read_session(session))
    owned = [seen.event for seen in told if isinstance(seen.event, McpChanged) and seen.event.owner == "scout#1"]
    assert [(event.server, event.state) for event in owned] == [("inner", "connected")]
    calls = [seen.event for seen in told if isinstance(seen.event, ToolEnded) and seen.agent == "scout"]
    assert [(call.name, call.is_error) for call in calls] == [
        ("mcp__inner__whoami", False),
        ("mcp__probe__whoami", True),
    ]


WAITING = (
    'default: [{{tools: [{{mcp__probe__wait: {{file: "{file}"}}}}]}}, {{text: "It said {{{{last_tool_result}}}}"}}]'
)


def test_servers_end_when_the_root_is_killed(place: Servers) -> None:
    place.configure(probe=PROBE)
    file = place.project.parent / "waits"
    with place.start("run", "Go.", *place.model(WAITING.format(file=file)), *BYPASS) as started:
        assert place.becomes_true(lambda: file.exists() and file.read_text() != "")
        server = int(file.read_text())
        place.kill_root()
        started.communicate(timeout=30)
    assert place.becomes_true(lambda: not psutil.pid_exists(server))
    assert place.becomes_true(place.has_no_processes)


@pytest.mark.soak
def test_killed_mcp_host_is_replaced(place: Servers) -> None:
    place.configure(probe=PROBE)
    file = place.project.parent / "waits"
    script = f"""
default:
  - tools: [{{mcp__probe__wait: {{file: "{file}"}}}}]
  - text: "{{{{last_tool_result}}}}"
    tools: [{{mcp__probe__whoami: {{}}}}]
  - text: "{{{{last_tool_result}}}}"
"""
    with place.start("run", "Go.", *place.model(script), *BYPASS) as started:
        assert place.becomes_true(lambda: file.exists() and file.read_text() != "")
        server = psutil.Process(int(file.read_text()))
        host = server.parent()
        assert host is not None
        host.kill()
        said, _ = started.communicate(timeout=30)
        assert started.returncode == 0
    assert "ended in the middle of this call of probe" in said
    assert "process" in said.splitlines()[-1]
    assert not server.is_running()
    assert ["is restarted" in event.reason for event in place.events(LayerFailed)] == [True]
    assert place.has_no_processes()


@pytest.mark.soak
def test_slow_call_is_cancelled_on_both_sides(place: Servers) -> None:
    place.configure(probe=PROBE)
    place.write(".coterie/settings.toml", "[mcp]\ncall_seconds = 0.5\n")
    file = place.project.parent / "lingers"
    done = place.run(calling("mcp__probe__linger", f'{{file: "{file}"}}'))
    assert "The MCP server probe has not answered within 0.5 seconds." in done.stdout
    assert file.read_text() == "given up"
    assert [event.state for event in place.events(McpChanged)] == ["connected"]


INTRUDER = """
import json, socket
names = {line.split()[-1][1:] for line in open("/proc/net/unix") if "@coterie-mcp-" in line}
question = {"word": "call_tool", "token": "", "agent": "x", "server": "probe", "tool": "whoami", "arguments": {}}
data = json.dumps({**question, "seconds": 5}).encode()
heard = b""
for name in names:  # of all sessions on this machine, as nothing says whose it is
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect("\\0" + name)
        peer.sendall(len(data).to_bytes(4, "big") + data)
        heard += peer.recv(1000)
    except ConnectionError:
        pass
print("found some:", bool(names), "heard:", len(heard))
"""


def test_child_of_an_agent_cannot_bypass_its_permissions(place: Servers) -> None:
    place.configure(probe=PROBE)
    (place.project / "intruder.py").write_text(INTRUDER)
    done = place.run(calling("Bash", f'{{command: "{sys.executable} -P intruder.py"}}'))
    assert "It said found some: True heard: 0" in done.stdout


SPEECHLESS = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        info = {"name": "x", "version": "1"}
        answer = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    else:
        answer = {"error": {"code": -32603, "message": "the database is down"}}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


def test_mcp_test_command_fails_for_a_server_that_does_not_start_or_list_its_tools(place: Servers) -> None:
    speechless = {"command": sys.executable, "args": ["-c", SPEECHLESS]}
    place.configure(probe=PROBE, gone={"command": "no-such-program"}, speechless=speechless)
    done = place.coterie("mcp", "test", "--json")
    tried = {server["name"]: server for server in json.loads(done.stdout)}
    assert done.returncode == 1
    assert "no-such-program" in tried["gone"]["failure"]
    assert "the database is down" in tried["speechless"]["failure"]
    assert (tried["probe"]["failure"], "mcp__probe__whoami" in tried["probe"]["tools"]) == ("", True)
    assert place.coterie("mcp", "test", "probe").returncode == 0


def test_missing_mcp_package_is_reported_and_the_run_continues(place: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    place.configure(probe=PROBE)
    place.write("../site/sitecustomize.py", "import sys; sys.modules['mcp'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(place.project.parent / "site"), prepend=os.pathsep)
    done = place.run("default: [{text: done}]")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "not installed; run `pip install 'coterie[mcp]'`; not started: probe" in done.stderr


def test_http_server_is_used_and_its_failure_reported(place: Servers) -> None:
    port = place.project.parent / "port"
    command = [*map(str, (PROBE["command"], *PROBE["args"])), str(port)]
    script = """
default:
  - tools: [{mcp__far__whoami: {}}]
  - text: "{{last_tool_result}}"
    tools: [{mcp__far__die: {words: x}}]
  - text: "{{last_tool_result}}"
    tools: [{mcp__far__whoami: {}}]
  - text: "{{last_tool_result}}"
"""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        while "Uvicorn running" not in server.stderr.readline():
            pass
        place.configure(
            far={"type": "http", "url": f"http://127.0.0.1:{port.read_text()}/mcp", "headers": {"X-A": "b"}}
        )
        done = place.run(script)
        assert server.wait(30) == -signal.SIGKILL
    first, second, third = done.stdout.splitlines()
    assert first == f"process {server.pid}"
    assert "The connection to the MCP server far was lost during this call" in second
    assert "The MCP server far is not available" in third
    assert [event.state for event in place.events(McpChanged)] == ["connected", "lost", "failed"]
