"""`POST /v1/messages`: from a parsed call to a billed answer, whole or streamed."""

import hashlib
from typing import Any

import attrs
import msgspec
import trio

from coterie.agents.models import ModelTable
from coterie.scenarios.server.api.call import Call, parse_call
from coterie.scenarios.server.api.compose import Composed, compose, prewarmed
from coterie.scenarios.server.api.delivery import deliver, strike_before
from coterie.scenarios.server.api.exchange import Exchange
from coterie.scenarios.server.api.ids import Ids, place_of
from coterie.scenarios.server.api.ratelimit import RateLimiter
from coterie.scenarios.server.api.structured import check_reply
from coterie.scenarios.server.caching.cache import PromptCache, Verdict
from coterie.scenarios.server.caching.diagnostics import Diagnoser
from coterie.scenarios.server.caching.markers import find_markers
from coterie.scenarios.server.caching.prompt import Prompt, build_prompt
from coterie.scenarios.server.caching.usage import billed, usage_json
from coterie.scenarios.server.rules.checks import check_call, check_size
from coterie.scenarios.server.rules.thinking import ThinkingSigner
from coterie.scenarios.server.script.choice import Chooser, Chosen
from coterie.scenarios.server.script.faults import Fault, FaultPlan
from coterie.scenarios.server.script.reading import Script
from coterie.scenarios.server.script.signals import Signals


@attrs.define(eq=False)
class MessagesEndpoint:
    """Answers calls by the script, and keeps the prompt cache."""

    script: Script
    seed: int
    is_strict: bool
    models: ModelTable
    limiter: RateLimiter | None
    """None when nothing is limited."""
    ids: Ids
    faults: FaultPlan
    signals: Signals
    cache: PromptCache = attrs.field(init=False, factory=PromptCache)
    _diagnoser: Diagnoser = attrs.field(init=False, factory=Diagnoser)
    _chooser: Chooser = attrs.field(init=False)
    _signer: ThinkingSigner = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._chooser = Chooser(self.script, seed=self.seed)
        self._signer = ThinkingSigner(hashlib.blake2b(str(self.seed).encode()).digest())

    async def answer(self, exchange: Exchange) -> None:
        """Answer one call; raises `ApiError` as long as the answer has not begun."""
        call = self._call(exchange)
        exchange.facts["stream"] = call.stream
        fault = await self._strike(exchange, self.faults.take(call.caller, call.model.id))
        if self.limiter is not None:
            self.limiter.admit(call.caller.key, call.model.id, exchange.started)
        prompt = self._checked(call)
        markers = find_markers(call, prompt)
        verdict = self.cache.look_up(prompt, markers, minimum=call.model.cache_minimum, now=exchange.started)
        digest = hashlib.blake2b(exchange.request.body, digest_size=16).digest()
        chosen, composed = await self._reply(exchange, call, prompt, digest)
        if chosen is not None and chosen.fault is not None:
            fault = await self._strike(exchange, chosen.fault)
        message = self._message(call, prompt, verdict, composed)
        self._settle(exchange, call, prompt, verdict, message)
        # An entry becomes readable when the response begins, and this is the last moment before it does.
        self.cache.publish(verdict)
        is_whole = await deliver(exchange, call, message, composed, chosen, fault)
        for name in chosen.reply.signals if chosen and is_whole else ():
            self.signals.raise_signal(name)

    async def count(self, exchange: Exchange) -> None:
        """`count_tokens`: free, and blind to the cache."""
        call = self._call(exchange, needs_max_tokens=False)
        prompt = self._checked(call, counting=True)
        find_markers(call, prompt)
        answer: dict[str, Any] = {"input_tokens": prompt.total}
        if call.params.get("context_management") is not None:
            answer["context_management"] = {"original_input_tokens": prompt.original_total}
        await exchange.send(msgspec.json.encode(answer))

    def _call(self, exchange: Exchange, *, needs_max_tokens: bool = True) -> Call:
        assert exchange.caller is not None
        call = parse_call(exchange.request.body, exchange.caller, self.models, needs_max_tokens=needs_max_tokens)
        exchange.facts["model"] = call.model.id
        return call

    async def _strike(self, exchange: Exchange, fault: Fault | None) -> Fault | None:
        """Carry out what comes in place of an answer; what is returned strikes in the middle of one."""
        if fault is not None:
            exchange.facts["fault"] = fault.kind
            await strike_before(fault, exchange.respond)
        return fault

    def _checked(self, call: Call, *, counting: bool = False) -> Prompt:
        check_call(call, strict=self.is_strict, counting=counting)
        if self.is_strict:
            self._signer.check(call)
        prompt = build_prompt(call, cache_edits_beta=self.models.betas["cache_edits"])
        check_size(call, prompt.total)
        return prompt

    async def _reply(
        self, exchange: Exchange, call: Call, prompt: Prompt, digest: bytes
    ) -> tuple[Chosen | None, Composed]:
        if call.max_tokens == 0:
            return None, prewarmed(self.ids.message(place_of(call.caller, 0, digest)))
        chosen = self._chooser.choose(call, digest)
        reply = chosen.reply
        exchange.facts["reply"] = reply.name
        place = place_of(call.caller, chosen.facts.turn, digest)
        composed = compose(call, chosen, place, ids=self.ids, signer=self._signer, prompt_tokens=prompt.total)
        if self.is_strict:
            check_reply(call, composed, reply.name)
        for name in reply.asked:
            self.signals.raise_signal(name)
        if reply.until or reply.delay:
            async with exchange.respond.while_connected():
                await self.signals.wait(reply.until)
                await trio.sleep(reply.delay)
        return chosen, composed

    def _message(self, call: Call, prompt: Prompt, verdict: Verdict, composed: Composed) -> dict[str, Any]:
        message: dict[str, Any] = {
            "id": composed.message_id,
            "type": "message",
            "role": "assistant",
            "model": call.model_name,
            "content": composed.content,
            "stop_reason": composed.stop_reason,
            "stop_sequence": composed.stop_sequence,
            "stop_details": composed.stop_details,
            "usage": usage_json(verdict, composed.output_tokens, composed.thinking_tokens),
        }
        diagnostics = call.params.get("diagnostics")
        if isinstance(diagnostics, dict):
            previous = diagnostics.get("previous_message_id")
            message["diagnostics"] = self._diagnoser.diagnose(previous, call.model.id, prompt)
            self._diagnoser.remember(composed.message_id, call.model.id, prompt)
        if call.params.get("context_management") is not None:
            message["context_management"] = {"applied_edits": prompt.applied_edits}
        return message

    def _settle(
        self, exchange: Exchange, call: Call, prompt: Prompt, verdict: Verdict, message: dict[str, Any]
    ) -> None:
        """Bill the answer: to the rate limits, and to the log."""
        usage = billed(verdict, message["usage"]["output_tokens"])
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
