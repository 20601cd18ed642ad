"""Warm-up of the model client in the zygote (warm process from which agent processes are forked).

Forked processes share the objects that it creates. It runs no event loop, whose open files they would inherit.
"""

import os
import ssl
from functools import cache

import anthropic
import httpx2
from anthropic._base_client import Platform, get_platform

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.reply import ReplyBuilder, SseParser


def ssl_context(*, is_loopback: bool) -> ssl.SSLContext:
    """Return the cached TLS context for model calls, with CA certificates of the machine or of `SSL_CERT_FILE`.

    With *is_loopback*, it verifies no server and contains no certificates.
    """
    return _unchecked() if is_loopback else _checking(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def platform_name() -> Platform:
    """Return the name of the operating system, cached, as the SDK sends it to the API."""
    return get_platform()


@cache
def _checking(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()


@cache
def _unchecked() -> ssl.SSLContext:
    return httpx2.create_ssl_context(verify=False)


TIMES = 3
"""Number of warm-up rounds, so that Python optimises the functions before the fork, in memory that is then shared."""

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
    """Create the slow objects of a model client, and parse a sample reply. Starts no thread, leaves no file open."""
    ssl_context(is_loopback=False)  # takes a quarter of a second
    known_models()
    platform_name()
    for _ in range(TIMES):
        # Dropped without closing: it has no open connection.
        transport = anthropic.DefaultAsyncHttpxClient(verify=ssl_context(is_loopback=True), trust_env=False)
        anthropic.AsyncAnthropic(api_key="none", base_url="http://127.0.0.1:1", http_client=transport)
        cutter, builder = SseParser(), ReplyBuilder()
        for event in EVENTS:
            for data in cutter.feed(b"data: %b\n\n" % event):
                builder.feed(data)
        builder.build(request_id=None, first_byte=0.0, duration=0.0)
