"""A first call to nobody, so that no later one is the first: it makes and imports what the SDK puts off until then.

It is for a process that others are forked from, which then share what it has made.
"""

import trio

from coterie.agents.gate import LocalGate
from coterie.agents.model.client import open_model_client
from coterie.agents.model.request import ModelRequest
from coterie.agents.model.retry import RetryPolicy
from coterie.agents.models import known_models

TIMES = 3
"""Python adapts functions that are called again, and writes into them when it does."""

_BODY = b'{"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"?"}]}]}'
_MESSAGE = b'"id":"msg_0","type":"message","role":"assistant","model":"none","content":[],"stop_reason":null'
_EVENTS = (
    b'{"type":"message_start","message":{%b,"usage":{"input_tokens":1,"output_tokens":1}}}' % _MESSAGE,
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"!"}}',
    b'{"type":"content_block_stop","index":0}',
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}',
    b'{"type":"message_stop"}',
)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def rehearse() -> None:
    """Ask a listener of our own on loopback. No thread is started, and no descriptor stays open."""
    for _ in range(TIMES):
        trio.run(_rehearse)


async def _rehearse() -> None:
    request = ModelRequest(body=_BODY, model=known_models().get("sonnet"), max_tokens=1, prompt_tokens=1)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    _, port = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, _answer, listeners)
        url, once = f"http://127.0.0.1:{port}", RetryPolicy(attempts=1)
        async with open_model_client(LocalGate(), base_url=url, api_key="none", policy=once) as client:
            await client.ask(request)
        nursery.cancel_scope.cancel()


async def _answer(stream: trio.SocketStream) -> None:
    asked = b""
    while _BODY not in asked:
        asked += await stream.receive_some()
    await stream.send_all(_HEAD + b"".join(b"data: %b\n\n" % event for event in _EVENTS))
    await stream.send_eof()
    async for _ in stream:  # closed with something unread, it would be reset, and the answer might be lost
        pass
