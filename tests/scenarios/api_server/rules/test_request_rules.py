import base64
from typing import Any

import attrs
import pytest

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.rules.block_rules import KNOWN_TYPES
from coterie.scenarios.api_server.rules.rule_list import check_request
from tests.agents.tools.files.pdf_files import pdf
from tests.scenarios.api_server.request_samples import assistant, make_call, text, tool, tool_result, tool_use, user

OLD = "2023-06-01"
BUDGETED = "claude-opus-4-5"
ADAPTIVE = "claude-opus-4-6"
FREE = "claude-opus-5"
BOUND = "claude-opus-5-5"

SMALL = "claude-haiku-4-5"

BUDGET = {"type": "enabled", "budget_tokens": 2000}
ADAPT = {"type": "adaptive"}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}
UNANSWERED = (
    "messages.{0}: `tool_use` ids were found without `tool_result` blocks immediately after: {1}. "
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
UNEXPECTED = (
    "messages.{0}: unexpected `tool_use_id` found in `tool_result` blocks: {1}. "
    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
)
NO_PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."
EMPTY = "messages.{0}: all messages must have non-empty content except for the optional final assistant message"

NAME = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"


ANY, READ = {"type": "any"}, {"type": "tool", "name": "Read"}
FORCED = 'tool_choice: type "tool" and "any" are not supported for this model.'
STRICT_OBJECT = "For 'object' type, 'additionalProperties' must be explicitly set to false"
PREWARM = "max_tokens: 0 fills the prompt cache only and cannot be used with"
BUDGETS_GONE = (
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
    '"output_config.effort" to control thinking behavior.'
)
OUTPUT_LIMIT = "64001 > 64000, which is the maximum allowed number of output tokens for claude-opus-4-5"
TOKENS = "thinking.enabled.budget_tokens"
NO_STRING = "Input should be a valid string"
DISPLAYS = "Input should be 'summarized', 'omitted'"
EFFORTS = "Input should be 'low', 'medium', 'high', 'xhigh', 'max'"
RESULT_TYPES = ("document", "image", "search_result", "text", "tool_reference")
NO_SAMPLING = "not supported with anthropic-version 2026-10-21"
PDF_TYPE = "Input should be 'application/pdf'"
IMAGE_TYPES = "Input should be 'image/jpeg', 'image/png', 'image/gif', 'image/webp'"

HELLO = user(text("hello"))
CALLS = assistant(tool_use("a"), tool_use("b"))
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
CITED = text("so", citations=[{"type": "char_location"}])
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
COMPACTED = {"type": "compaction", "content": "before"}
FIRST, SECOND, RESULT = "messages.0.content.0", "messages.1.content.0", "messages.2.content.0.tool_result.content"


def bad_tag(place: str, tag: str, *expected: str) -> str:
    tags = ", ".join(f"'{name}'" for name in expected)
    return f"{place}: Input tag '{tag}' found using 'type' does not match any of the expected tags: {tags}"


def system(*blocks: Block) -> dict[str, Any]:
    return {"role": "system", "content": list(blocks)}


def asking(**params: Any) -> ApiRequest:
    return make_call(tools=[tool()], **params)


def encoded(kind: str, media_type: str) -> ApiRequest:
    return make_call(user(shown(kind, type="base64", media_type=media_type, data="")))


def tooled(**tool_: Any) -> ApiRequest:
    return make_call(tools=[tool_])


def formatted(**format_: Any) -> ApiRequest:
    return make_call(output_config={"format": format_})


def budgeted(thinking: Any = None, max_tokens: int = 4000) -> ApiRequest:
    return make_call(model=BUDGETED, thinking=thinking, max_tokens=max_tokens)


def said(*blocks: Block) -> ApiRequest:
    """A request in which these blocks are the reply to a greeting."""
    return make_call(HELLO, assistant(*blocks), HELLO)


def shown(kind: str, **source: Any) -> Block:
    return {"type": kind, "source": source}


def answered(*content: Any) -> ApiRequest:
    return make_call(HELLO, assistant(tool_use("a")), user(tool_result("a", list(content))))


def at_version(call: ApiRequest, version: str) -> ApiRequest:
    return attrs.evolve(call, caller=attrs.evolve(call.caller, version=version))


def refusal(call: ApiRequest, *, strict: bool = True, **options: Any) -> str | None:
    """The message of the rule that *call* breaks, or None if it breaks none."""
    try:
        check_request(call, strict=strict, **options)
    except ApiError as error:
        return error.message if error.status == 400 else str(error)
    return None


REFUSED: list[tuple[ApiRequest, str]] = [
    (asking(model=BOUND, tool_choice=ANY), FORCED),
    (asking(model=BOUND, tool_choice=READ), FORCED),
    (make_call(tool_choice=READ, tools=[tool("Write")]), "Tool 'Read' not found in provided tools"),
    (asking(tool_choice={"type": "tool"}), "tool_choice.tool.name: Field required"),
    (make_call(tool_choice={"type": "auto"}), "tool_choice may only be specified while providing tools."),
    (asking(tool_choice={"type": "some"}), bad_tag("tool_choice", "some", "auto", "any", "tool", "none")),
    (make_call(tools=[tool(), tool()]), "tools: Tool names must be unique."),
    (make_call(tools=[tool("a b")]), f"tools.0.custom.name: {NAME}"),
    (make_call(tools=[tool(), tool("x" * 129)]), f"tools.1.custom.name: {NAME}"),
    (tooled(input_schema={"type": "object"}), "tools.0.custom.name: Field required"),
    (tooled(name="Read"), "tools.0.custom.input_schema: Field required"),
    (tooled(name="Read", input_schema="s"), "tools.0.custom.input_schema: Input should be a valid dictionary"),
    (tooled(name="Read", input_schema={}), "tools.0.custom.input_schema.type: Field required"),
    (tooled(name="Read", input_schema=ANY), "tools.0.custom.input_schema.type: Input should be 'object'"),
    *(
        (tooled(type=tag, name="Read"), bad_tag("tools.0", str(tag), "custom", "a versioned tool type"))
        for tag in ("x", 5)
    ),
    (make_call(tools=[tool(strict=True)]), f"tools.0.custom.input_schema: {STRICT_OBJECT}"),
    (make_call(thinking=BUDGET, max_tokens=4000), BUDGETS_GONE),
    (budgeted(BUDGET, max_tokens=2000), "`max_tokens` must be greater than `thinking.budget_tokens`."),
    (budgeted({**BUDGET, "budget_tokens": 1023}), f"{TOKENS}: Input should be greater than or equal to 1024"),
    (budgeted({"type": "enabled"}), f"{TOKENS}: Field required"),
    *((budgeted({**BUDGET, "budget_tokens": n}), f"{TOKENS}: Input should be a valid integer") for n in (True, "2")),
    (budgeted({"type": "adaptive"}), '"thinking.type.adaptive" is not supported for this model.'),
    (asking(thinking={"type": "on"}), bad_tag("thinking", "on", "adaptive", "enabled", "disabled", "between_tools")),
    (asking(thinking={**ADAPT, "display": "full"}), f"thinking.adaptive.display: {DISPLAYS}"),
    (asking(output_config={"effort": "extreme"}), f"output_config.effort: {EFFORTS}"),
    (asking(model=SMALL, output_config={"effort": "low"}), "This model does not support the effort parameter."),
    (formatted(type="grammar"), bad_tag("output_config.format", "grammar", "json_schema")),
    (formatted(type="json_schema"), "output_config.format.schema: Field required"),
    (formatted(type="json_schema", schema={"type": "object"}), f"output_config.format.schema: {STRICT_OBJECT}"),
    (make_call(output_format=FORMAT), "output_format: Extra inputs are not permitted. Use `output_config.format`."),
    (make_call(stop_sequences=[" \n"]), "stop_sequences: each stop sequence must contain non-whitespace"),
    (make_call(temperature=1.0), f"temperature: {NO_SAMPLING}"),
    (make_call(top_p=0.9), f"top_p: {NO_SAMPLING}"),
    (make_call(top_k=4), f"top_k: {NO_SAMPLING}"),
    (budgeted(max_tokens=64_001), f"max_tokens: {OUTPUT_LIMIT}"),
    (make_call(max_tokens=0, stream=True), f"{PREWARM} `stream`: true"),
    (budgeted(BUDGET, max_tokens=0), f"{PREWARM} `thinking` enabled"),
    (make_call(max_tokens=0, output_config={"format": FORMAT}), f"{PREWARM} `output_config.format`"),
    (make_call(max_tokens=0, tools=[tool()], tool_choice=ANY), f'{PREWARM} `tool_choice` of type "any" or "tool"'),
    (make_call(system=""), "system: text content blocks must be non-empty"),
    (make_call(system=[{"type": "image", "source": {}}]), bad_tag("system.0", "image", "text")),
    (make_call(assistant(text("hi")), HELLO), 'messages: first message must use the "user" role'),
    (make_call(HELLO, assistant(text("I"))), NO_PREFILL),
    (make_call(HELLO, assistant(text("I")), system(text("s"))), NO_PREFILL),
    (make_call(user(), assistant(text("I")), HELLO), EMPTY.format(0)),
    (said(), EMPTY.format(1)),
    (make_call(user(text(""))), "messages: text content blocks must be non-empty"),
    (said(text("a"), text("")), "messages: text content blocks must be non-empty"),
    (said(DOCUMENT), f"{SECOND}: `document` blocks cannot stand directly in `assistant` messages"),
    (make_call(user(CITED)), f"{FIRST}.text.citations: `citations` must be empty in `user` messages"),
    (make_call(user(THOUGHT)), f"{FIRST}: `thinking` blocks can only be in `assistant` messages"),
    (said({"type": "cache_edits", "edits": []}), f"{SECOND}: `cache_edits` blocks can only be in `user` messages"),
    (said({"type": "thinking", "thinking": "hm"}), f"{SECOND}.thinking.signature: Field required"),
    (said({"type": "redacted_thinking", "data": 1}), f"{SECOND}.redacted_thinking.data: {NO_STRING}"),
    (make_call(user({"type": "video"})), bad_tag(FIRST, "video", *KNOWN_TYPES, "*_tool_result")),
    (make_call(user(shown("image", type="path"))), bad_tag(f"{FIRST}.image.source", "path", "base64", "url", "file")),
    (make_call(user(shown("image", type="url"))), f"{FIRST}.image.source.url.url: Field required"),
    (encoded("image", "image/bmp"), f"{FIRST}.image.source.base64.media_type: {IMAGE_TYPES}"),
    (
        encoded("document", "text/plain"),
        f"{FIRST}.document.source.base64.media_type: Input should be 'application/pdf'",
    ),
    (answered({**tool_use("b"), "input": {}}), bad_tag(f"{RESULT}.0", "tool_use", *RESULT_TYPES)),
    (answered(shown("image", type="url")), f"{RESULT}.0.image.source.url.url: Field required"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_request_the_api_refuses_is_refused_in_its_words_and_taken_when_lenient(call: ApiRequest, message: str) -> None:
    assert refusal(call) == message
    assert refusal(call, strict=False) is None


TOOLS = [tool("x" * 128), tool("A-z_9", type="custom"), {"type": "bash_20250124", "name": "bash"}]
MIXED: dict[str, Any] = {
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "weather": {"city": "Oslo"},
    "temperature": None,
}
SEARCH = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}


@pytest.mark.parametrize(
    "call",
    [
        make_call(model=BOUND, tool_choice={"type": "auto", "disable_parallel_tool_use": True}, tools=[tool()]),
        make_call(model=BOUND, tool_choice={"type": "none"}, tools=[tool()], system=[text("be brief")]),
        make_call(tool_choice=ANY, tools=[tool()], stop_sequences=["END"]),
        make_call(tool_choice=READ, tools=[tool(), tool("b")], thinking={"type": "between_tools"}),
        make_call(
            tool_choice=None, tools=[*TOOLS, {"type": "browser_toolset_20260801"}], thinking={"type": "disabled"}
        ),
        tooled(name="Read", strict=True, input_schema=FORMAT["schema"]),
        budgeted(BUDGET, max_tokens=2001),
        make_call(model=ADAPTIVE, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=4000),
        make_call(model=ADAPTIVE, thinking={"type": "adaptive"}),
        make_call(
            output_config={"effort": "xhigh", "format": FORMAT}, thinking={"type": "adaptive", "display": "omitted"}
        ),
        make_call(output_config={"effort": None, "format": None}, **MIXED),
        budgeted(max_tokens=64_000),
        make_call(max_tokens=128_000),
        make_call(max_tokens=0, thinking={"type": "adaptive"}, output_config={"effort": "low"}),
        make_call(max_tokens=0, tools=[tool()], tool_choice={"type": "auto"}),
        make_call(system(text("s")), HELLO, assistant(COMPACTED)),
        make_call(assistant(COMPACTED), HELLO, assistant(SEARCH)),
        make_call(HELLO, HELLO, assistant(text("a")), assistant(text("b")), HELLO, system(text("s"))),
        make_call(user(DOCUMENT, IMAGE), user(text("so", citations=[])), assistant(CITED), HELLO),
        said(THOUGHT, text("so")),
        make_call(user({"type": "web_fetch_tool_result"}, {"type": "search_result"}, {"type": "container_upload"})),
        make_call(system({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Read"}}), HELLO),
        answered(text("seen"), IMAGE),
        *(make_call(HELLO, assistant(*last), model=BUDGETED) for last in ([text("I")], [text("")], [])),
    ],
)
def test_the_nearest_request_the_api_takes_is_taken(call: ApiRequest) -> None:
    assert refusal(call) is None


NO_DICTIONARY, REQUIRED = "Input should be a valid dictionary", "Field required"
UNREADABLE = [
    (make_call(tool_choice="auto"), f"tool_choice: {NO_DICTIONARY}"),
    (make_call(thinking=[]), f"thinking: {NO_DICTIONARY}"),
    (make_call(output_config=1), f"output_config: {NO_DICTIONARY}"),
    (make_call(output_config={"format": "json"}), f"output_config.format: {NO_DICTIONARY}"),
    (make_call(output_config={"format": {"schema": 1}}), f"output_config.format.schema: {NO_DICTIONARY}"),
    (make_call(stop_sequences="END"), "stop_sequences: Input should be a valid list"),
    (make_call(stop_sequences=["END", 1]), f"stop_sequences.1: {NO_STRING}"),
    (make_call(stop_sequences=[None]), f"stop_sequences.0: {NO_STRING}"),
    (make_call(context_management="none"), f"context_management: {NO_DICTIONARY}"),
    (make_call(user({"type": "text"})), f"{FIRST}.text.text: {REQUIRED}"),
    (make_call(user({"type": "text", "text": None})), f"{FIRST}.text.text: {NO_STRING}"),
    (make_call(user({"type": "tool_use", "name": "Read", "input": {}})), f"{FIRST}.tool_use.id: {REQUIRED}"),
    (make_call(user({**tool_use("a"), "input": "{}"})), f"{FIRST}.tool_use.input: {NO_DICTIONARY}"),
    (make_call(user({"type": "tool_result"})), f"{FIRST}.tool_result.tool_use_id: {REQUIRED}"),
    (make_call(user({**tool_result("a"), "tool_use_id": 1})), f"{FIRST}.tool_result.tool_use_id: {NO_STRING}"),
    (make_call(user(tool_result("a", 1))), f"{FIRST}.tool_result.content: Input should be a valid string or list"),
    (make_call(user(tool_result("a", ["x"]))), f"{FIRST}.tool_result.content.0: {NO_DICTIONARY}"),
    (make_call(user(tool_result("a", [{}]))), f"{FIRST}.tool_result.content.0.type: {REQUIRED}"),
    (make_call(user(tool_result("a", [{"type": "text"}]))), f"{FIRST}.tool_result.content.0.text.text: {REQUIRED}"),
    (make_call(user({"type": "thinking", "signature": "s"})), f"{FIRST}.thinking.thinking: {REQUIRED}"),
    (make_call(user({"type": "image", "source": "x.png"})), f"{FIRST}.image.source: {NO_DICTIONARY}"),
    (make_call(user({"type": "document"})), f"{FIRST}.document.source: {REQUIRED}"),
    (make_call(user({"type": "cache_edits"})), f"{FIRST}.cache_edits.edits: {REQUIRED}"),
]


@pytest.mark.parametrize(("call", "message"), UNREADABLE, ids=[message[:50] for _, message in UNREADABLE])
def test_request_that_cannot_be_read_is_refused_even_when_lenient(call: ApiRequest, message: str) -> None:
    assert refusal(call, strict=False) == message


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": 1}, None),
        ({"temperature": 1.1}, "temperature: Input should be less than or equal to 1"),
        ({"top_p": -0.1}, "top_p: Input should be greater than or equal to 0"),
        ({"top_k": 40}, None),
        ({"top_k": 0.5}, "top_k: Input should be a valid integer"),
        ({"temperature": "hot"}, "temperature: Input should be a valid number"),
        ({"output_format": FORMAT}, None),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema: Field required"),
        ({"messages": [user(CITED), assistant(DOCUMENT), HELLO]}, None),
    ],
)
def test_the_older_version_takes_older_parameters_and_messages(params: dict[str, Any], message: str | None) -> None:
    call = make_call(*params.get("messages", []), **{key: params[key] for key in params if key != "messages"})
    assert refusal(call) is not None
    assert refusal(at_version(call, OLD)) == message
    if params == {"temperature": 1}:
        model = attrs.evolve(call.model, refuses=["sampling"])  # type: ignore[list-item]  # the converter is generic
        assert refusal(at_version(attrs.evolve(call, model=model), OLD)) == "temperature: not supported for this model."


def test_counting_tokens_has_no_max_tokens_to_check() -> None:
    call = budgeted(BUDGET, max_tokens=1)
    assert refusal(call) is not None
    assert refusal(call, counting=True) is None
    assert refusal(make_call(stop_sequences=[""]), counting=True) is not None


def pages_in(*counts: int, results: bool = False) -> list[dict[str, Any]]:
    """Return messages with PDFs of these page counts, in tool results or next to text."""
    encoded = [base64.b64encode(pdf(count)).decode() for count in counts]
    files = [shown("document", type="base64", media_type="application/pdf", data=each) for each in encoded]
    if not results:
        return [user(text("look"), *files)]
    return [HELLO, assistant(tool_use("a")), user(tool_result("a", files))]


@pytest.mark.parametrize("results", [True, False])
def test_a_request_has_so_many_pages_and_no_more(results: bool) -> None:
    few, many = pages_in(60, 40, results=results), pages_in(60, 41, results=results)
    assert refusal(make_call(*few, model=BUDGETED)) is None
    assert refusal(make_call(*many, model=BUDGETED)) == "A maximum of 100 PDF pages may be provided."
    assert refusal(make_call(*pages_in(600, results=results), model=ADAPTIVE)) is None
    assert refusal(make_call(*pages_in(600, 1), model=ADAPTIVE)) == "A maximum of 600 PDF pages may be provided."


BOTH = user(tool_result("a"), tool_result("b"))

PAIRS: list[tuple[list[dict[str, Any]], str | None]] = [
    ([HELLO, CALLS, BOTH], None),
    ([HELLO, CALLS, user(tool_result("b"), tool_result("a"), text("go on"))], None),
    ([HELLO, assistant(tool_use("a")), assistant(tool_use("b")), user(tool_result("a")), user(tool_result("b"))], None),
    ([HELLO, CALLS, system(text("s")), BOTH], None),
    ([HELLO, CALLS, BOTH, system(text("s"))], None),
    ([HELLO, CALLS, user({"type": "cache_edits", "edits": []}, tool_result("a"), tool_result("b"))], None),
    ([HELLO, CALLS, BOTH, assistant(text("ok"), tool_use("c")), user(tool_result("c"))], None),
    ([HELLO, CALLS, HELLO], UNANSWERED.format(1, "a, b")),
    ([HELLO, CALLS], UNANSWERED.format(1, "a, b")),
    ([HELLO, CALLS, user(tool_result("a"))], UNANSWERED.format(1, "b")),
    ([HELLO, CALLS, user(tool_result("a"), text("and"), tool_result("b"))], UNANSWERED.format(1, "b")),
    ([HELLO, CALLS, user(text("first")), BOTH], UNANSWERED.format(1, "a, b")),
    ([HELLO, CALLS, user(text("wait")), assistant(text("?")), BOTH], UNEXPECTED.format("4.content.0", "a")),
    ([user(tool_result("a"))], UNEXPECTED.format("0.content.0", "a")),
    ([HELLO, CALLS, user(*BOTH["content"], tool_result("c"))], UNEXPECTED.format("2.content.2", "c")),
    (
        [HELLO, CALLS, user(*BOTH["content"], tool_result("a"))],
        "messages.2.content.2: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a",
    ),
    ([HELLO, assistant(tool_use("a"), tool_use("a")), BOTH], "messages.1.content.1: `tool_use` ids must be unique: a"),
    ([HELLO, CALLS, BOTH, CALLS, BOTH], "messages.3.content.0: `tool_use` ids must be unique: a"),
    ([user(tool_use("a"))], "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages"),
    (
        [HELLO, CALLS, system(*BOTH["content"])],
        "messages.2.content.0: `tool_result` blocks can only be in `user` messages",
    ),
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("messages", "message"), PAIRS)
def test_every_tool_use_has_its_result_at_once_first_and_once(
    messages: list[dict[str, Any]], message: str | None, *, strict: bool
) -> None:
    assert refusal(make_call(*messages), strict=strict) == message
