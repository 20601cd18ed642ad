"""Rules for the parameters of a request: output length and format, effort, thinking, sampling."""

from collections.abc import Mapping
from typing import Any

from coterie.scenarios.api_server.request.api_request import ApiRequest
from coterie.scenarios.api_server.request.errors import ApiError, invalid_request
from coterie.scenarios.api_server.rules.block_rules import TYPE_NAMES, quoted, unknown_tag
from coterie.scenarios.api_server.rules.message_rules import NEWEST_VERSION
from coterie.scenarios.api_server.rules.schema import check_schema

READ_AS: Mapping[str, type] = {
    "cache_control": dict,
    "compaction": dict,
    "context_management": dict,
    "diagnostics": dict,
    "metadata": dict,
    "output_config": dict,
    "output_format": dict,
    "stop_sequences": list,
    "thinking": dict,
    "thread": dict,
    "tool_choice": dict,
}
"""JSON type of those top-level parameters that the server reads as an object or list; null counts as absent."""

SAMPLING = ("temperature", "top_p", "top_k")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING_TYPES = ("adaptive", "enabled", "disabled", "between_tools")
DISPLAYS = ("summarized", "omitted")
SMALLEST_BUDGET = 1024


def values_have_their_type(call: ApiRequest) -> None:
    """Raise `ApiError` if a parameter that the server reads has the wrong JSON type."""
    for name, value in call.params.items():
        if name in READ_AS:
            _is_a(value, READ_AS[name], name)
    previous = (call.params.get("diagnostics") or {}).get("previous_message_id")
    _is_a(previous, str, "diagnostics.previous_message_id")
    for index, stop in enumerate(call.params.get("stop_sequences") or ()):
        _is_a(stop, str, f"stop_sequences.{index}", optional=False)
    output_format = _output_format(call)
    if output_format is not None:
        _is_a(output_format[1], dict, output_format[0])
        _is_a(output_format[1].get("schema"), dict, f"{output_format[0]}.schema")


def sampling_is_allowed(call: ApiRequest) -> None:
    """Raise `ApiError` if `temperature`, `top_p` or `top_k` is out of range, or refused by the API version or model."""
    for name in SAMPLING:
        value = call.params.get(name)
        if value is None:
            continue
        if call.caller.version == NEWEST_VERSION:
            raise invalid_request(f"{name}: not supported with anthropic-version {NEWEST_VERSION}")
        if "sampling" in call.model.refuses:
            raise invalid_request(f"{name}: not supported for this model.")
        _is_in_range(name, value)


def effort_is_known(call: ApiRequest) -> None:
    """Raise `ApiError` if `output_config.effort` is an unknown level or the model does not support effort."""
    effort = (call.params.get("output_config") or {}).get("effort")
    if effort is not None and effort not in EFFORTS:
        raise invalid_request(f"output_config.effort: Input should be {quoted(EFFORTS)}")
    if effort is not None and "effort" in call.model.refuses:
        raise invalid_request("This model does not support the effort parameter.")


def output_format_is_supported(call: ApiRequest) -> None:
    """Raise `ApiError` if the output format is no supported JSON schema or not in the parameter of this API version."""
    if call.params.get("output_format") is not None and call.caller.version == NEWEST_VERSION:
        raise invalid_request("output_format: Extra inputs are not permitted. Use `output_config.format`.")
    located = _output_format(call)
    if located is None:
        return
    path, output_format = located
    if output_format.get("type") != "json_schema":
        raise unknown_tag(path, output_format.get("type"), ("json_schema",))
    if output_format.get("schema") is None:
        raise invalid_request(f"{path}.schema: Field required")
    check_schema(output_format["schema"], f"{path}.schema")


def stop_sequences_are_not_empty(call: ApiRequest) -> None:
    """Raise `ApiError` if a stop sequence is empty or only white space."""
    for stop in call.params.get("stop_sequences") or ():
        if not stop.strip():
            raise invalid_request("stop_sequences: each stop sequence must contain non-whitespace")


def thinking_is_supported(call: ApiRequest) -> None:
    """Raise `ApiError` if the thinking type is unknown or unsupported by the model, or budget or display is invalid."""
    thinking = call.params.get("thinking")
    if thinking is None:
        return
    kind, display = thinking.get("type"), thinking.get("display")
    if kind not in THINKING_TYPES:
        raise unknown_tag("thinking", kind, THINKING_TYPES)
    if kind == "enabled":
        _budget_is_allowed(call, thinking.get("budget_tokens"))
    if kind == "adaptive" and call.model.thinking == "extended":
        raise invalid_request('"thinking.type.adaptive" is not supported for this model.')
    if display is not None and display not in DISPLAYS:
        raise invalid_request(f"thinking.{kind}.display: Input should be {quoted(DISPLAYS)}")


def max_tokens_fit_the_model(call: ApiRequest) -> None:
    """Raise `ApiError` if `max_tokens` is greater than the maximum output of the model."""
    if call.max_tokens > call.model.max_output:
        raise invalid_request(
            f"max_tokens: {call.max_tokens} > {call.model.max_output}, "
            f"which is the maximum allowed number of output tokens for {call.model_name}"
        )


def prewarming_asks_for_no_output(call: ApiRequest) -> None:
    """Raise `ApiError` if a request with `max_tokens: 0` (only fills the cache) asks for output, as by `stream`."""
    if call.max_tokens > 0:
        return
    if call.stream:
        raise _no_output("`stream`: true")
    if _kind(call, "thinking") == "enabled":
        raise _no_output("`thinking` enabled")
    if _output_format(call) is not None:
        raise _no_output("`output_config.format`")
    if _kind(call, "tool_choice") in ("any", "tool"):
        raise _no_output('`tool_choice` of type "any" or "tool"')


def budget_leaves_room_for_text(call: ApiRequest) -> None:
    """Raise `ApiError` if thinking is enabled and its budget is not less than `max_tokens`."""
    if _kind(call, "thinking") == "enabled" and call.params["thinking"]["budget_tokens"] >= call.max_tokens:
        raise invalid_request("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _kind(call: ApiRequest, name: str) -> Any:
    return (call.params.get(name) or {}).get("type")


def _output_format(call: ApiRequest) -> tuple[str, Any] | None:
    config = call.params.get("output_config")
    if config and config.get("format") is not None:
        return "output_config.format", config["format"]
    old = call.params.get("output_format")
    return None if old is None else ("output_format", old)


def _is_a(value: Any, kind: type, path: str, *, optional: bool = True) -> None:
    if not isinstance(value, kind) and not (optional and value is None):
        raise invalid_request(f"{path}: Input should be a valid {TYPE_NAMES[kind]}")


def _is_in_range(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else int | float):
        raise invalid_request(f"{name}: Input should be a valid {'integer' if name == 'top_k' else 'number'}")
    if value < 0:
        raise invalid_request(f"{name}: Input should be greater than or equal to 0")
    if name != "top_k" and value > 1:
        raise invalid_request(f"{name}: Input should be less than or equal to 1")


def _budget_is_allowed(call: ApiRequest, budget: Any) -> None:
    if "thinking_budget" in call.model.refuses:
        raise invalid_request(
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    if budget is None:
        raise invalid_request("thinking.enabled.budget_tokens: Field required")
    if not isinstance(budget, int) or isinstance(budget, bool):
        raise invalid_request("thinking.enabled.budget_tokens: Input should be a valid integer")
    if budget < SMALLEST_BUDGET:
        raise invalid_request(
            f"thinking.enabled.budget_tokens: Input should be greater than or equal to {SMALLEST_BUDGET}"
        )


def _no_output(what: str) -> ApiError:
    return invalid_request(f"max_tokens: 0 fills the prompt cache only and cannot be used with {what}")
