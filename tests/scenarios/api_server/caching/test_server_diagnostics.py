from typing import Any

from coterie.scenarios.api_server.caching.cache_diagnostics import CacheDiagnoser
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest, build_prompt_digest
from tests.scenarios.api_server.request_samples import make_call, sized, tool, user

MODEL = "claude-opus-5"
FIRST = user(sized(10, "a"))


def prompt_of(*messages: dict[str, Any], **changes: Any) -> PromptDigest:
    request: dict[str, Any] = {"tools": [tool("A"), tool("B")], "system": [sized(5)], **changes}
    return build_prompt_digest(make_call(*(messages or (FIRST,)), **request))


def _remembered(diagnoser: CacheDiagnoser, *ids: str) -> list[bool]:
    return [diagnoser.diagnose(id_, MODEL, prompt_of()) is None for id_ in ids]


def test_least_recently_used_message_is_dropped_first() -> None:
    diagnoser = CacheDiagnoser(messages_limit=2)
    diagnoser.remember("msg_1", MODEL, prompt_of())
    diagnoser.remember("msg_2", MODEL, prompt_of())
    diagnoser.diagnose("msg_1", MODEL, prompt_of())
    diagnoser.remember("msg_3", MODEL, prompt_of())
    assert _remembered(diagnoser, "msg_1", "msg_2", "msg_3") == [True, False, True]


def test_long_prompts_push_out_old_messages_sooner() -> None:
    diagnoser = CacheDiagnoser(positions_limit=9)
    for number in range(4):
        diagnoser.remember(f"msg_{number}", MODEL, prompt_of())
    diagnoser.remember("msg_3", MODEL, prompt_of())
    assert _remembered(diagnoser, "msg_0", "msg_1", "msg_2", "msg_3") == [False, False, True, True]
