"""A first reply from nowhere, so that no later one is the first: what is put off until then is made and imported.

It is for a process that others are forked from, which then share what it has made. No event loop is run for it: what a
loop leaves behind is not to be inherited.
"""

import anthropic

from coterie.agents.model.reply import ReplyBuilder
from coterie.agents.model.sse import EventCutter
from coterie.agents.model.transport import platform_name, ready_ssl_context, ssl_context
from coterie.agents.models import known_models

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


def rehearse() -> None:
    """Make what a client needs, and put a reply together. No thread is started, and no descriptor stays open."""
    ready_ssl_context()
    known_models()
    platform_name()
    for _ in range(TIMES):
        # Made and dropped: it holds no connection, and has nothing to close.
        transport = anthropic.DefaultAsyncHttpxClient(verify=ssl_context(is_loopback=True), trust_env=False)
        anthropic.AsyncAnthropic(api_key="none", base_url="http://127.0.0.1:1", http_client=transport)
        cutter, builder = EventCutter(), ReplyBuilder()
        for event in EVENTS:
            for data in cutter.feed(b"data: %b\n\n" % event):
                builder.take(data)
        builder.build(request_id=None, first_byte=0.0, duration=0.0)
