"""MCP server for tests: reports its process, and can misbehave on request.

`python mcp_server.py` serves over its pipes, `python mcp_server.py PORT-FILE` over HTTP on a port that it writes there.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Image, MCPServer

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)
"""The smallest valid picture."""

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
def lines(count: int) -> str:
    """Return *lines* lines."""
    return "\n".join(f"line {number}" for number in range(count))


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def facts() -> dict[str, Any]:
    """Return structured data."""
    return {"answer": 42}


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
