"""`POST /v1/messages` and `count_tokens`: checks a request, selects its scripted reply, and computes its usage."""

import hashlib
import secrets
from typing import Any

import attrs
import msgspec
import trio

from coterie.agents.loop.model.catalog import ModelTable, known_models
from coterie.scenarios.api_server.api.exchange import ApiExchange
from coterie.scenarios.api_server.api.rate_limiter import RateLimiter, RateLimits
from coterie.scenarios.api_server.api.response_builder import BuiltResponse, IdGenerator, build_response, reply_key
from coterie.scenarios.api_server.api.response_delivery import inject_before, send_response
from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.cache_diagnostics import CacheDiagnoser
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache, billed_usage, usage_json
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest, build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest, parse_request
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.rules.rule_list import check_request, check_size
from coterie.scenarios.api_server.rules.schema import violations
from coterie.scenarios.api_server.rules.thinking_signatures import ThinkingSigner
from coterie.scenarios.api_server.script.http_faults import HttpFault, HttpFaultPlan
from coterie.scenarios.api_server.script.reply_selection import ReplySelector, SelectedReply
from coterie.scenarios.api_server.script.script_parser import Script
from coterie.scenarios.api_server.script.script_signals import ScriptSignals


@attrs.frozen(kw_only=True)
class ServerOptions:
    """Options of an embedded server. Servers with equal options give equal answers to equal sequences of requests."""

    script: Script
    seed: int = 0
    is_strict: bool = True
    """True to check requests by all known rules of the real API; False to check only that a reply can be computed."""
    rates: RateLimits = attrs.field(factory=RateLimits)
    models: ModelTable = attrs.field(factory=known_models)
    token: str = attrs.field(factory=lambda: secrets.token_urlsafe(24))
    """Password that every request to the control endpoint `/_coterie/` must contain."""


def check_reply(call: ApiRequest, built: BuiltResponse, name: str) -> None:
    """Raise `ApiError` (400) if a scripted reply breaks `output_config.format` or the schema of a strict tool.

    The real model cannot break them, so the error is in the script. A truncated reply is not checked, as in the API.
    """
    if built.stop_reason in ("max_tokens", "refusal", "model_context_window_exceeded"):
        return
    config = call.params.get("output_config") or {}
    schema = (config.get("format") or call.params.get("output_format") or {}).get("schema")
    if isinstance(schema, dict) and built.stop_reason != "tool_use":
        try:
            value = msgspec.json.decode("".join(block["text"] for block in built.content if block["type"] == "text"))
        except (msgspec.DecodeError, RecursionError) as exc:
            reason = f"script reply {name} is not the JSON that output_config.format asks for: {exc}"
            raise invalid_request(reason) from exc
        _check_schema(value, schema, f"script reply {name} does not satisfy output_config.format")
    custom = [tool for tool in call.tools if tool.get("type") in (None, "custom")]
    strict = {tool["name"]: tool["input_schema"] for tool in custom if tool.get("strict") is True}
    for block in built.content:
        if block["type"] == "tool_use" and block["name"] in strict:
            what = f"script reply {name} calls {block['name']} with input that breaks its strict schema"
            _check_schema(block["input"], strict[block["name"]], what)


def _check_schema(value: Any, schema: dict[str, Any], what: str) -> None:
    if found := violations(value, schema):
        raise invalid_request(f"{what}: {found[0]}")


@attrs.define(eq=False)
class MessagesEndpoint:
    """Answers the requests to `/v1/messages` with replies of the script, and maintains the simulated prompt cache."""

    options: ServerOptions
    ids: IdGenerator
    faults: HttpFaultPlan
    signals: ScriptSignals
    limiter: RateLimiter | None = attrs.field(init=False)
    """Enforces the rate limits of `options`; None if there are none."""
    cache: PromptCache = attrs.field(init=False, factory=PromptCache)
    _diagnoser: CacheDiagnoser = attrs.field(init=False, factory=CacheDiagnoser)
    _selector: ReplySelector = attrs.field(init=False)
    _signer: ThinkingSigner = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        options = self.options
        self.limiter = RateLimiter(options.rates) if options.rates != RateLimits() else None
        self._selector = ReplySelector(options.script, seed=options.seed)
        self._signer = ThinkingSigner(hashlib.blake2b(str(options.seed).encode()).digest())

    async def answer(self, exchange: ApiExchange) -> None:
        """Answer one `POST /v1/messages` request.

        Raises `ApiError` for a refused request or an injected error, and `ClientGone` if the client disconnects.
        """
        call = self._call(exchange)
        exchange.facts["stream"] = call.stream
        fault = await self._inject_fault(exchange, self.faults.next_fault(call.caller, call.model.id))
        if self.limiter is not None:
            self.limiter.admit(call.caller.key, call.model.id, exchange.started)
        prompt = self._checked(call)
        markers = find_breakpoints(call, prompt)
        cache_result = self.cache.look_up(prompt, markers, minimum=call.model.cache_minimum, now=exchange.started)
        digest = hashlib.blake2b(exchange.request.body, digest_size=16).digest()
        selected, built = await self._reply(exchange, call, prompt, digest)
        if selected is not None and selected.fault is not None:
            fault = await self._inject_fault(exchange, selected.fault)
        message = self._message(call, prompt, cache_result, built)
        self._settle(exchange, call, prompt, cache_result, message)
        # Cache entries become readable when the response starts, so publish immediately before.
        self.cache.publish(cache_result)
        is_whole = await send_response(exchange, call, message, built, selected, fault)
        for name in selected.reply.signals if selected and is_whole else ():
            self.signals.raise_signal(name)

    async def count(self, exchange: ApiExchange) -> None:
        """Answer a `count_tokens` request with its number of input tokens; it is not billed or cached."""
        call = self._call(exchange, needs_max_tokens=False)
        prompt = self._checked(call, counting=True)
        find_breakpoints(call, prompt)
        answer: dict[str, Any] = {"input_tokens": prompt.total}
        if call.params.get("context_management") is not None:
            answer["context_management"] = {"original_input_tokens": prompt.total + prompt.cleared_tokens}
        await exchange.send(msgspec.json.encode(answer))

    def _call(self, exchange: ApiExchange, *, needs_max_tokens: bool = True) -> ApiRequest:
        assert exchange.caller is not None
        call = parse_request(
            exchange.request.body, exchange.caller, self.options.models, needs_max_tokens=needs_max_tokens
        )
        exchange.facts["model"] = call.model.id
        return call

    async def _inject_fault(self, exchange: ApiExchange, fault: HttpFault | None) -> HttpFault | None:
        """Log *fault* and return it, or raise an exception if its kind replaces the answer; None means no fault.

        The caller passes a returned fault to `send_response`, which applies it while the answer is sent.
        """
        if fault is not None:
            exchange.facts["fault"] = fault.kind
            await inject_before(fault, exchange.respond)
        return fault

    def _checked(self, call: ApiRequest, *, counting: bool = False) -> PromptDigest:
        check_request(call, strict=self.options.is_strict, counting=counting)
        if self.options.is_strict:
            self._signer.check(call)
        prompt = build_prompt_digest(call, cache_edits_beta=self.options.models.betas["cache_edits"])
        check_size(call, prompt.total)
        return prompt

    async def _reply(
        self, exchange: ApiExchange, call: ApiRequest, prompt: PromptDigest, digest: bytes
    ) -> tuple[SelectedReply | None, BuiltResponse]:
        if call.max_tokens == 0:
            # Such a request only fills the cache.
            message_id = self.ids.message(reply_key(call.caller, 0, digest))
            return None, BuiltResponse(message_id=message_id, stop_reason="max_tokens")
        selected = self._selector.select(call, digest)
        reply = selected.reply
        exchange.facts["reply"] = reply.name
        key = reply_key(call.caller, selected.facts.turn, digest)
        built = build_response(call, selected, key, ids=self.ids, signer=self._signer, prompt_tokens=prompt.total)
        if self.options.is_strict:
            check_reply(call, built, reply.name)
        for name in reply.asked:
            self.signals.raise_signal(name)
        if reply.until or reply.delay:
            async with exchange.respond.while_connected():
                await self.signals.wait(reply.until)
                await trio.sleep(reply.delay)
        return selected, built

    def _message(
        self, call: ApiRequest, prompt: PromptDigest, cache_result: CacheResult, built: BuiltResponse
    ) -> dict[str, Any]:
        message: dict[str, Any] = {
            "id": built.message_id,
            "type": "message",
            "role": "assistant",
            "model": call.model_name,
            "content": built.content,
            "stop_reason": built.stop_reason,
            "stop_sequence": built.stop_sequence,
            "stop_details": built.stop_details,
            "usage": usage_json(cache_result, built.output_tokens, built.thinking_tokens),
        }
        diagnostics = call.params.get("diagnostics")
        if isinstance(diagnostics, dict):
            previous = diagnostics.get("previous_message_id")
            message["diagnostics"] = self._diagnoser.diagnose(previous, call.model.id, prompt)
            self._diagnoser.remember(built.message_id, call.model.id, prompt)
        if call.params.get("context_management") is not None:
            message["context_management"] = {"applied_edits": prompt.applied_edits}
        return message

    def _settle(
        self,
        exchange: ApiExchange,
        call: ApiRequest,
        prompt: PromptDigest,
        cache_result: CacheResult,
        message: dict[str, Any],
    ) -> None:
        """Subtract the tokens of an answer from the rate limits, and put its usage and prompt hashes into the log."""
        usage = billed_usage(cache_result, message["usage"]["output_tokens"])
        key, model, now = call.caller.key, call.model, exchange.started
        if self.limiter is not None:
            written = usage.prompt - usage.read
            self.limiter.settle(key, model.id, input_tokens=written, output_tokens=usage.output, now=now)
            exchange.headers.extend(self.limiter.headers(key, model.id, now))
        exchange.facts.update(
            message_id=message["id"],
            stop_reason=message["stop_reason"],
            usage=message["usage"],
            cost=(model, usage),
            tools_hash=prompt.digest_before(prompt.system_start),
            system_hash=prompt.digest_before(prompt.messages_start),
            prefix_hash=prompt.digest_before(len(prompt.digests)),
        )
