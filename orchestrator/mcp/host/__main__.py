"""The program of the process that holds the servers; its arguments are two descriptors: a line to the root, and a door.

It ends with the root: when that closes the line, or is killed.
"""

import hmac
import socket
import sys
from functools import partial

import msgspec
import trio

from coterie.agents.control.line import open_line
from coterie.agents.errors import ControlLost
from coterie.agents.mcp.words import FRAME_LIMIT, CallTool, NotCalled, Stay, questions
from coterie.mailbox.bridge.frames import PeerInvalid, read_frame, write_frame
from coterie.mailbox.bridge.place import check_uid, read_credentials
from coterie.orchestrator.mcp.host.pool import Pool
from coterie.orchestrator.mcp.words import root_says
from coterie.orchestrator.starting.kernel import set_title

PATIENCE = 10.0
"""Seconds in which whoever connects has said what it wants."""


def main() -> None:
    """Hold the servers of one session, and exit when the root says so."""
    line, door = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:])
    set_title("coterie mcp host")
    trio.run(_serve, line, door)


async def _serve(near: socket.socket, door: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(near))
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(door))
    async with open_line(stream, root_says) as line:
        order = await line.hear()
        if order is None:
            return
        async with trio.open_nursery() as nursery:
            pool = Pool(order, nursery, line.say)
            nursery.start_soon(partial(trio.serve_listeners, partial(_attend, pool), [listener]))
            if not order.is_listed:
                line.say(await pool.list_all())
            while await line.hear() is not None:
                pass
            nursery.cancel_scope.cancel()


async def _attend(pool: Pool, stream: trio.SocketStream) -> None:
    """Serve one connection of an agent. Whoever has gone is not told."""
    async with stream:
        try:
            check_uid(read_credentials(stream))
            with trio.fail_after(PATIENCE):
                frame = await read_frame(stream, FRAME_LIMIT)
            if frame is None:
                return
            question = questions.decode(frame)
            # What an agent starts may connect as well, but was not told the token.
            if not hmac.compare_digest(question.token.encode(), pool.order.token.encode()):
                return
            if isinstance(question, Stay):
                await _wait_for_end(stream)
                pool.release(question.agent)
            else:
                await _call(pool, question, stream)
        except (OSError, PeerInvalid, ControlLost, msgspec.DecodeError, trio.TooSlowError, trio.BrokenResourceError):
            return


async def _call(pool: Pool, question: CallTool, stream: trio.SocketStream) -> None:
    """Make the call, unless the agent closes the connection meanwhile."""
    answer = b""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await _wait_for_end(stream)
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        answer = msgspec.json.encode(await pool.call(question))
        nursery.cancel_scope.cancel()
    if len(answer) > FRAME_LIMIT:
        reason = f"The MCP server {question.server} answered with {len(answer):,} bytes, which is too much."
        answer = msgspec.json.encode(NotCalled(reason=reason))
    if answer:
        await write_frame(stream, answer)


async def _wait_for_end(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        return


if __name__ == "__main__":
    main()
