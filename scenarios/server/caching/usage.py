"""What a request used, as the API reports it and as it is billed."""

from typing import Any

from coterie.agents.usage import Usage
from coterie.scenarios.server.caching.cache import Verdict


def usage_json(verdict: Verdict, output_tokens: int, thinking_tokens: int = 0) -> dict[str, Any]:
    """The `usage` object of a reply; *thinking_tokens* are part of *output_tokens*.

    `cache_deleted_input_tokens` appears only when the request carried cache edits.
    """
    created = {
        "ephemeral_5m_input_tokens": verdict.write_5m,
        "ephemeral_1h_input_tokens": verdict.write_1h,
    }
    usage: dict[str, Any] = {
        "input_tokens": verdict.uncached,
        "cache_creation_input_tokens": verdict.write_5m + verdict.write_1h,
        "cache_read_input_tokens": verdict.read,
        "cache_creation": created,
        "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
        "service_tier": "standard",
        "inference_geo": "global",
        "iterations": [
            {
                "type": "message",
                "input_tokens": verdict.uncached,
                "output_tokens": output_tokens,
                "cache_read_input_tokens": verdict.read,
                "cache_creation_input_tokens": verdict.write_5m + verdict.write_1h,
                "cache_creation": dict(created),
            }
        ],
    }
    if verdict.deleted is not None:
        usage["cache_deleted_input_tokens"] = verdict.deleted
    return usage


def billed(verdict: Verdict, output_tokens: int) -> Usage:
    """The same figures by the price they are billed at."""
    return Usage(
        input=verdict.uncached,
        read=verdict.read,
        write_5m=verdict.write_5m,
        write_1h=verdict.write_1h,
        output=output_tokens,
    )
