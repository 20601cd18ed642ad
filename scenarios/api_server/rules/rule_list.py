"""Lists the rules of the Messages API that a request must satisfy, and checks a request against them in order."""

from collections.abc import Callable

from coterie.scenarios.api_server.request.api_request import ApiRequest
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.rules import block_rules, message_rules, parameter_rules, tool_rules

Rule = Callable[[ApiRequest], None]
"""A check of a request: returns if the request follows the rule, and raises `ApiError` (400) otherwise."""

SHAPES: tuple[Rule, ...] = (
    parameter_rules.values_have_their_type,
    block_rules.blocks_have_their_fields,
    tool_rules.every_tool_use_has_its_result,
)
"""Rules checked in both strict and lenient mode, because no reply can be computed for a request that breaks one."""

PARAMETERS: tuple[Rule, ...] = (
    parameter_rules.sampling_is_allowed,
    parameter_rules.effort_is_known,
    parameter_rules.output_format_is_supported,
    parameter_rules.stop_sequences_are_not_empty,
    parameter_rules.thinking_is_supported,
)
TOOLS: tuple[Rule, ...] = (
    tool_rules.tools_are_well_formed,
    tool_rules.tool_names_are_unique,
    tool_rules.tool_choice_is_possible,
)
MESSAGES: tuple[Rule, ...] = (
    block_rules.block_types_are_known,
    block_rules.thinking_is_signed,
    block_rules.sources_are_complete,
    block_rules.pdf_pages_are_few_enough,
    message_rules.first_message_is_from_user,
    message_rules.block_positions_are_valid,
    message_rules.nothing_is_empty,
    message_rules.prefill_is_allowed,
)
OUTPUT: tuple[Rule, ...] = (
    parameter_rules.max_tokens_fit_the_model,
    parameter_rules.prewarming_asks_for_no_output,
    parameter_rules.budget_leaves_room_for_text,
)
"""Rules on the output length. Like `PARAMETERS`, `TOOLS` and `MESSAGES`, checked in strict mode only: the API refuses
a request that breaks one, although a reply could be computed.
"""


def check_request(call: ApiRequest, *, strict: bool, counting: bool = False) -> None:
    """Raise `ApiError` (400) for the first rule of the API that *call* breaks.

    Without *strict* (lenient mode), only the rules in `SHAPES` are checked. Unknown parameters are always accepted.
    *counting* skips the rules on `max_tokens`, which a request to count tokens does not have.
    """
    rules = list(SHAPES)
    if strict:
        # Only the rules that can apply: most requests have few parameters, many have no tools.
        rules += PARAMETERS if call.params else ()
        rules += TOOLS if call.tools or "tool_choice" in call.params else ()
        rules += MESSAGES
        rules += () if counting else OUTPUT
    for rule in rules:
        rule(call)


def check_size(call: ApiRequest, prompt_tokens: int) -> None:
    """Raise `ApiError` (400) if the prompt alone exceeds the context window of the model."""
    if prompt_tokens > call.model.window:
        raise invalid_request(f"prompt is too long: {prompt_tokens} tokens > {call.model.window} maximum")
