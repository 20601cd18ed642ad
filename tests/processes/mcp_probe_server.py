"""An MCP server for tests: it says which process it is, and can be told to behave badly.

`python mcp_server.py` speaks over its pipes, `python mcp_server.py PORT-FILE` over HTTP on a port that it writes there.
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
"""The smallest picture there is."""

server = MCPServer("probe", instructions="Ask whoami first.")


@server.tool()
def whoami() -> str:
    """Say which process this is."""
    return f"process {os.getpid()}"


@server.tool()
def environment(name: str) -> str:
    """Say what a variable holds."""
    return os.environ.get(name, "(unset)")


@server.tool()
def lines(count: int) -> str:
    """Say so many lines."""
    return "\n".join(f"line {number}" for number in range(count))


@server.tool()
def picture() -> Image:
    """Show a picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def facts() -> dict[str, Any]:
    """Say something as data."""
    return {"answer": 42}


@server.tool()
def die(words: str) -> str:
    """End in the middle of a call."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def wait(file: str) -> str:
    """Never answer; *file* says when it began."""
    Path(file).write_text(str(os.getpid()))
    time.sleep(1000)
    return "never"


@server.tool()
async def linger(file: str) -> str:
    """Never answer, and say in *file* when nobody waits for an answer any more."""
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
