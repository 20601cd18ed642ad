"""What the embedded server refuses, as one list of named rules over a parsed call."""

from collections.abc import Callable, Iterator

from coterie.scenarios.server.api.call import Call
from coterie.scenarios.server.errors import invalid_request
from coterie.scenarios.server.rules import blocks, messages, pairing, parameters, tool_definitions

Rule = Callable[[Call], None]
"""Returns when the call keeps it, raises `ApiError` (400) when not."""

SHAPES: tuple[Rule, ...] = (
    parameters.values_have_their_type,
    blocks.blocks_have_their_fields,
    pairing.every_tool_use_has_its_result,
)
"""Without these no reply can be computed: they hold in lenient mode too."""

PARAMETERS: tuple[Rule, ...] = (
    parameters.sampling_is_allowed,
    parameters.effort_is_known,
    parameters.output_format_is_supported,
    parameters.stop_sequences_are_not_empty,
    parameters.thinking_is_supported,
)
TOOLS: tuple[Rule, ...] = (
    tool_definitions.tools_are_well_formed,
    tool_definitions.tool_names_are_unique,
    tool_definitions.tool_choice_is_possible,
)
MESSAGES: tuple[Rule, ...] = (
    blocks.block_types_are_known,
    blocks.thinking_is_signed,
    blocks.sources_are_complete,
    blocks.pdf_pages_are_few_enough,
    messages.user_speaks_first,
    messages.blocks_stand_where_they_may,
    messages.nothing_is_empty,
    messages.prefill_is_allowed,
)
OUTPUT: tuple[Rule, ...] = (
    parameters.max_tokens_fit_the_model,
    parameters.prewarming_asks_for_no_output,
    parameters.budget_leaves_room_for_text,
)
"""The strict rules: what the API refuses although a reply could be computed."""


def check_call(call: Call, *, strict: bool, counting: bool = False) -> None:
    """Raise `ApiError` (400) with the first rule that *call* breaks.

    Lenient mode takes any documented parameter whatever its value; a parameter nobody knows is tolerated in
    both. *counting* leaves out the rules about `max_tokens`, which a request to count tokens does not have.
    """
    for rule in SHAPES:
        rule(call)
    if strict:
        for rule in _strict_rules(call, counting=counting):
            rule(call)


def _strict_rules(call: Call, *, counting: bool) -> Iterator[Rule]:
    """The strict rules that can apply: most requests have few parameters, and many no tools."""
    if call.params:
        yield from PARAMETERS
    if call.tools or "tool_choice" in call.params:
        yield from TOOLS
    yield from MESSAGES
    if not counting:
        yield from OUTPUT


def check_size(call: Call, prompt_tokens: int) -> None:
    """Raise `ApiError` (400) if the prompt alone is larger than the model's window."""
    if prompt_tokens > call.model.window:
        raise invalid_request(f"prompt is too long: {prompt_tokens} tokens > {call.model.window} maximum")
