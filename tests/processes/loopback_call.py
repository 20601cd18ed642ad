"""A model call to a listener on loopback with one fixed reply."""

import trio

from coterie.agents.loop.model import client_warmup
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import RetryPolicy, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import ModelRequest

_BODY = b'{"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"?"}]}]}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def call_loopback_model() -> None:
    """Send a request and read the reply."""
    request = ModelRequest(body=_BODY, model=known_models().get("sonnet"), max_tokens=1, prompt_tokens=1)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    _, port = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, _answer, listeners)
        url, once = f"http://127.0.0.1:{port}", RetryPolicy(attempts=1)
        async with open_model_client(LocalGateway(), base_url=url, api_key="none", policy=once) as client:
            await client.ask(request)
        nursery.cancel_scope.cancel()


async def _answer(stream: trio.SocketStream) -> None:
    asked = b""
    while _BODY not in asked:
        asked += await stream.receive_some()
    await stream.send_all(_HEAD + b"".join(b"data: %b\n\n" % event for event in client_warmup.EVENTS))
    await stream.send_eof()
    async for _ in stream:  # closed with something unread, it would be reset, and the answer might be lost
        pass
