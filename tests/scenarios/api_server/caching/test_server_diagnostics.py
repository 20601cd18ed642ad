from typing import Any

import pytest

from coterie.scenarios.api_server.caching.cache_diagnostics import CacheDiagnoser
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest, build_prompt_digest
from tests.scenarios.api_server.request_samples import assistant, make_call, sized, text, tool, user

MODEL = "claude-opus-5"
FIRST = user(sized(10, "a"))


def prompt_of(*messages: dict[str, Any], **changes: Any) -> PromptDigest:
    request: dict[str, Any] = {"tools": [tool("A"), tool("B")], "system": [sized(5)], **changes}
    return build_prompt_digest(make_call(*(messages or (FIRST,)), **request))


def remembering(prompt: PromptDigest) -> CacheDiagnoser:
    diagnoser = CacheDiagnoser()
    diagnoser.remember("msg_1", MODEL, prompt)
    return diagnoser


def reason(kind: str, missed: int | None = None) -> dict[str, Any]:
    tokens = {} if missed is None else {"cache_missed_input_tokens": missed}
    return {"cache_miss_reason": {"type": kind, **tokens}}


def test_a_prompt_that_only_grew_has_no_diagnosis() -> None:
    grown = prompt_of(FIRST, assistant(text("b")), user(text("c")))
    diagnoser = remembering(prompt_of())
    assert diagnoser.diagnose("msg_1", MODEL, grown) is None
    assert diagnoser.diagnose("msg_1", MODEL, prompt_of()) is None


def test_the_first_request_has_nothing_to_be_compared_with() -> None:
    assert CacheDiagnoser().diagnose(None, MODEL, prompt_of()) is None


@pytest.mark.parametrize(
    ("changes", "kind", "missed"),
    [
        ({"tools": [tool("A"), tool("C")]}, "tools_changed", 30),
        ({"tools": [tool("A")]}, "tools_changed", 15),
        ({"system": [sized(6)]}, "system_changed", 16),
        ({"speed": "fast"}, "model_changed", 15),
        ({"tool_choice": {"type": "any"}}, "unavailable", None),
        ({"thinking": {"type": "adaptive"}}, "unavailable", None),
    ],
)
def test_what_changed_is_named_with_the_tokens_behind_the_common_part(
    changes: dict[str, Any], kind: str, missed: int | None
) -> None:
    diagnosis = remembering(prompt_of()).diagnose("msg_1", MODEL, prompt_of(**changes))
    assert diagnosis == reason(kind, missed)


def test_another_model_misses_everything() -> None:
    prompt = prompt_of(model="claude-opus-4-8")
    diagnosis = remembering(prompt_of()).diagnose("msg_1", "claude-opus-4-8", prompt)
    assert diagnosis == reason("model_changed", prompt.total)


def test_an_edited_message_misses_what_follows_it() -> None:
    before = prompt_of(FIRST, assistant(sized(1)), user(sized(2)))
    after = prompt_of(FIRST, assistant(sized(3)), user(sized(2)))
    assert remembering(before).diagnose("msg_1", MODEL, after) == reason("messages_changed", 5)


def test_a_conversation_cut_short_has_changed() -> None:
    before = prompt_of(FIRST, assistant(sized(1)), user(sized(2)))
    assert remembering(before).diagnose("msg_1", MODEL, prompt_of()) == reason("messages_changed", 0)


def test_an_unknown_message_is_not_found() -> None:
    assert CacheDiagnoser().diagnose("msg_9", MODEL, prompt_of()) == reason("previous_message_not_found")


def test_the_message_of_another_key_is_not_found() -> None:
    diagnosis = remembering(prompt_of()).diagnose("msg_1", MODEL, prompt_of(key="another"))
    assert diagnosis == reason("previous_message_not_found")


def _remembered(diagnoser: CacheDiagnoser, *ids: str) -> list[bool]:
    return [diagnoser.diagnose(id_, MODEL, prompt_of()) is None for id_ in ids]


def test_the_message_asked_for_longest_ago_is_forgotten_first() -> None:
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
