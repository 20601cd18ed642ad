from typing import Any

import pytest

from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    HOUR,
    assistant,
    make_call,
    text,
    thinking,
    tool,
    tool_result,
    user,
)


def _markers(call: ApiRequest) -> list[tuple[int, str]]:
    return [(marker.index, marker.ttl) for marker in find_breakpoints(call, build_prompt_digest(call))]


def test_a_null_marker_is_none() -> None:
    assert _markers(make_call(user(text("a", cache_control=None)), cache_control=None)) == []


ORDER = (
    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
    "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)
DEFERRED = (
    "Tool 'A' cannot have both defer_loading=true and cache_control set. "
    "Tools with defer_loading cannot use prompt caching."
)


def _marked(block: Block, control: Any = EPHEMERAL) -> Block:
    return {**block, "cache_control": control}


def _alone(block: Block) -> dict[str, Any]:
    return {"messages": [user(block)]}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            _alone(_marked(text(), {"type": "eternal"})),
            "messages.0.content.0.cache_control.type: Input should be 'ephemeral'",
        ),
        (
            _alone(_marked(text(), {"type": "ephemeral", "ttl": "2h"})),
            "messages.0.content.0.cache_control.ttl: Input should be '5m' or '1h'",
        ),
        (
            _alone(_marked(text(), "ephemeral")),
            "messages.0.content.0.cache_control: Input should be a valid dictionary",
        ),
        (_alone(_marked(text(""))), "messages.0.content.0.text: cache_control cannot be set for empty text blocks"),
        ({"system": [_marked(text(""))]}, "system.0.text: cache_control cannot be set for empty text blocks"),
        (
            {"messages": [user(text()), assistant(_marked(thinking()))]},
            "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        ),
        (
            {"messages": [assistant(_marked({"type": "redacted_thinking", "data": "x"}))]},
            "messages.0.content.0.redacted_thinking.cache_control: Extra inputs are not permitted",
        ),
        (
            _alone(tool_result("1", [text(), _marked(text())])),
            "messages.0.content.0.content.1.cache_control: cache_control can only be set on top-level content blocks",
        ),
        ({"tools": [tool("A", defer_loading=True, cache_control=EPHEMERAL)]}, DEFERRED),
        (
            {"messages": [user(*(_marked(text()) for _ in range(5)))]},
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        ({"tools": [_marked(tool())], "system": [_marked(text(), HOUR)]}, f"system.0.cache_control.ttl: {ORDER}"),
        (
            {"messages": [user(_marked(text()), text(), _marked(text(), HOUR))]},
            f"messages.0.content.2.cache_control.ttl: {ORDER}",
        ),
        ({"messages": [user(_marked(text()), text())], "cache_control": HOUR}, f"cache_control.ttl: {ORDER}"),
        (
            {"messages": [user(_marked(text()))], "cache_control": HOUR},
            "cache_control.ttl: the last cacheable block already has a cache_control with ttl='5m'",
        ),
        (
            {"messages": [user(*(_marked(text()) for _ in range(4)), text())], "cache_control": EPHEMERAL},
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        ({"cache_control": {"type": "other"}}, "cache_control.type: Input should be 'ephemeral'"),
    ],
)
def test_a_marker_that_breaks_a_rule_is_refused(request_: dict[str, Any], message: str) -> None:
    messages = request_.get("messages", [user(text())])
    call = make_call(*messages, **{key: value for key, value in request_.items() if key != "messages"})
    with pytest.raises(ApiError) as refusal:
        find_breakpoints(call, build_prompt_digest(call))
    assert (refusal.value.status, refusal.value.message) == (400, message)


def test_automatic_caching_falls_back_on_the_tools() -> None:
    call = make_call(user(text("")), tools=[tool()], cache_control=EPHEMERAL)
    assert _markers(call) == [(0, "5m")]
