"""MCP server for tests: reports its process, and can misbehave on request.

`python mcp_server.py` serves over its pipes, `python mcp_server.py PORT-FILE` over HTTP on a port that it writes there.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("probe", instructions="Ask whoami first.")


@server.tool()
def whoami() -> str:
    """Return the pid of this process."""
    return f"process {os.getpid()}"


@server.tool()
def environment(name: str) -> str:
    """Return the value of a variable."""
    return os.environ.get(name, "(unset)")


@server.tool()
def die(words: str) -> str:
    """Exit during a call."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def wait(file: str) -> str:
    """Never answer; write to *file* at the start."""
    Path(file).write_text(str(os.getpid()))
    time.sleep(1000)
    return "never"


@server.tool()
async def linger(file: str) -> str:
    """Never answer, and write to *file* when the call is cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        Path(file).write_text("given up")  # noqa: ASYNC240 - it may not wait any more
    return "never"


def main() -> None:
    """Serve until the other end closes."""
    if len(sys.argv) < 2:
        server.run("stdio")
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    Path(sys.argv[1]).write_text(str(port))
    server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
