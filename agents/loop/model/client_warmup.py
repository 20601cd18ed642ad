"""Warm-up of the model client: what is slow to make is made once, before processes are forked.

It is for a process that others are forked from, which then share what it has made. No event loop is run for it: what a
loop leaves behind is not to be inherited.
"""

import os
import ssl
from functools import cache

import anthropic
import httpx2
from anthropic._base_client import Platform, get_platform

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.reply import ReplyBuilder
from coterie.agents.loop.model.sse import SseParser


def ssl_context(*, is_loopback: bool) -> ssl.SSLContext:
    """What connections are checked with: the machine's certificates, or what the environment names instead.

    On loopback nothing is checked, and nothing has to be read.
    """
    return _unchecked() if is_loopback else _checking(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def ready_ssl_context() -> None:
    """Have the one for the real API made, which takes a quarter of a second."""
    ssl_context(is_loopback=False)


@cache
def platform_name() -> Platform:
    """What the SDK tells the API about this machine."""
    return get_platform()


@cache
def _checking(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()


@cache
def _unchecked() -> ssl.SSLContext:
    return httpx2.create_ssl_context(verify=False)


TIMES = 3
"""Python adapts functions that are called again, and writes into them when it does."""

_MESSAGE = b'"id":"msg_0","type":"message","role":"assistant","model":"none","content":[],"stop_reason":null'
EVENTS = (
    b'{"type":"message_start","message":{%b,"usage":{"input_tokens":1,"output_tokens":1}}}' % _MESSAGE,
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"!"}}',
    b'{"type":"content_block_stop","index":0}',
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}',
    b'{"type":"message_stop"}',
)


def warm_up_client() -> None:
    """Make what a client needs, and put a reply together. No thread is started, and no descriptor stays open."""
    ready_ssl_context()
    known_models()
    platform_name()
    for _ in range(TIMES):
        # Made and dropped: it holds no connection, and has nothing to close.
        transport = anthropic.DefaultAsyncHttpxClient(verify=ssl_context(is_loopback=True), trust_env=False)
        anthropic.AsyncAnthropic(api_key="none", base_url="http://127.0.0.1:1", http_client=transport)
        cutter, builder = SseParser(), ReplyBuilder()
        for event in EVENTS:
            for data in cutter.feed(b"data: %b\n\n" % event):
                builder.feed(data)
        builder.build(request_id=None, first_byte=0.0, duration=0.0)
