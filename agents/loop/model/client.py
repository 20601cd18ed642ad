"""Client that sends model requests through the Anthropic SDK, streams the replies, and retries failed attempts.

Importing this module imports the SDK, which takes about two seconds; only processes that call the model import it.
"""

import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anthropic
import attrs
import httpx2
import trio
from anthropic.types import Message, RawMessageStreamEvent

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ModelUnreachable, ReplyMalformed
from coterie.agents.loop.model.api_errors import translate_error
from coterie.agents.loop.model.client_warmup import platform_name, ssl_context
from coterie.agents.loop.model.gateway_protocol import Gateway, Permit
from coterie.agents.loop.model.reply import Reply, ReplyBuilder, SseParser, WholeReplyParser
from coterie.agents.loop.model.request import ModelRequest
from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Retry policy of model calls. Without `retry-after`, waits double from *first_wait* to *longest_wait* seconds."""

    attempts: int = 5
    """Maximum number of attempts for one model call, the first included."""
    first_wait: float = 0.5
    longest_wait: float = 8.0
    retry_after_cap: float = 60.0
    """Maximum of the seconds that are taken from a `retry-after` header of the API; the header may ask for hours."""
    jitter: random.Random = attrs.field(factory=random.Random)

    def wait(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds to wait after attempt number *attempt* failed with *error*; None to give up."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            # Up to 25 % later than requested, so that waiting callers do not all retry at the same time.
            asked = min(error.retry_after, self.retry_after_cap)
            return asked * (1 + self.jitter.random() / 4)
        wait = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait)
        return wait * (1 - self.jitter.random() / 4)


CALL_FAILURES = (BudgetSpent, ModelError, ReplyMalformed, ControlLost)
"""Errors of a model call that background work reports as an event; `ControlLost` (root gone) also ends the agent."""
CLOSING = 2.0
"""Maximum seconds for closing the response of a call that has ended or was cancelled."""

Listener = Callable[[dict[str, Any]], None]
"""Function that gets each parsed stream event of a reply; a retry of the call starts again with `message_start`."""
Retrying = Callable[[ModelError, float], None]
"""Function that is called before a retry, with the error of the failed attempt and the seconds until the next one."""

_EventStream = anthropic.AsyncStream[RawMessageStreamEvent]


@attrs.define(eq=False)
class ModelClient:
    """Client for model calls over HTTP that several tasks may share; the gateway (budget, rate) admits each attempt."""

    _sdk: anthropic.AsyncAnthropic
    _gate: Gateway
    _policy: RetryPolicy
    _silence: float
    _is_loopback: bool

    def with_gateway(self, gate: Gateway) -> "ModelClient":
        """Return a client that uses the same connections, but asks the gateway *gate* to admit its model calls."""
        return attrs.evolve(self, gate=gate)

    async def ask(
        self, request: ModelRequest, listener: Listener | None = None, retrying: Retrying | None = None
    ) -> Reply:
        """Send *request*, again after a temporary failure, until a reply is complete; return this reply.

        Raises the `ModelError` of the last attempt, `ReplyMalformed`, `BudgetSpent`, or `ControlLost` of the gateway.
        Cancellation closes the connection immediately, drops the incomplete reply, and gives the permit back.
        """
        attempt = 1
        while True:
            async with self._gate.admit(request.intent) as permit:
                try:
                    reply = await self._attempt(request, permit, listener)
                except ModelError as error:
                    wait = self._policy.wait(error, attempt)
                    if wait is None:
                        raise
                    if retrying is not None:
                        retrying(error, wait)
                    if error.status in (429, 529) or error.kind in ("rate_limit_error", "overloaded_error"):
                        # Delays every next admission, that of this call included. Called before the permit is
                        # released, so that no waiting call starts before the cool-down.
                        self._gate.cool_down(wait)
                        wait = 0.0
                else:
                    return attrs.evolve(reply, attempts=attempt)
            await trio.sleep(wait)
            attempt += 1

    async def _attempt(self, request: ModelRequest, permit: Permit, listener: Listener | None) -> Reply:
        builder = ReplyBuilder()
        try:
            return await self._stream(request, builder, permit, listener)
        except ModelError as error:
            # A call without a reply was surely not billed if it was refused or never connected.
            cause = None if error.__cause__ is None else error.__cause__.__cause__
            is_free = error.status is not None or isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
            if not builder.has_begun and is_free:
                permit.void()
            raise
        finally:
            # An interrupted stream is billed too: its input and the output so far.
            if builder.has_begun:
                permit.settle(Usage.from_api(builder.usage), is_whole=builder.has_stopped)

    async def _stream(
        self, request: ModelRequest, builder: ReplyBuilder, permit: Permit, listener: Listener | None
    ) -> Reply:
        cutter = SseParser() if request.max_tokens else WholeReplyParser()
        intake = _Intake(builder, permit, listener, cutter)
        started = trio.current_time()
        with trio.CancelScope(deadline=started + self._silence) as silence_scope:
            async with self._open(request, builder) as response, aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    silence_scope.deadline = trio.current_time() + self._silence
                    if not intake.feed(chunk):
                        # Cancelling closes the SDK's generators; `break` would leave them to the garbage collector.
                        silence_scope.cancel()
        if intake.failure is not None:
            raise intake.failure
        if not builder.has_stopped:
            reason = f"sent nothing for {self._silence:g} s" if silence_scope.cancelled_caught else "ended the stream"
            raise ModelUnreachable(f"the API {reason} before the end of the reply; try again", begun=builder.has_begun)
        return builder.build(
            request_id=response.headers.get("request-id"),
            first_byte=(intake.begun or started) - started,
            duration=trio.current_time() - started,
        )

    @asynccontextmanager
    async def _open(self, request: ModelRequest, builder: ReplyBuilder) -> AsyncIterator[httpx2.Response]:
        """Send *request* and yield the response; SDK and HTTP errors, also in the block, become `ModelError`."""
        try:
            stream = await self._sdk.post(
                request.path,
                cast_to=Message,
                content=_Body(request.body),
                options={"headers": request.headers(is_loopback=self._is_loopback)},
                stream=True,
                stream_cls=_EventStream,
            )
            try:
                yield stream.response
            finally:
                with trio.move_on_after(CLOSING, shield=True):
                    await stream.close()
        except (anthropic.APIError, httpx2.HTTPError) as exc:
            raise translate_error(exc, begun=builder.has_begun) from exc


@attrs.define(eq=False)
class _Body:
    """Request body that gives its chunks to the HTTP client one by one, so that a large body is not copied."""

    _chunks: Sequence[bytes]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


@attrs.define(eq=False)
class _Intake:
    """Processor of one reply stream: passes received bytes to parser and reply builder, and events to the listener."""

    builder: ReplyBuilder
    permit: Permit
    listener: Listener | None
    cutter: SseParser | WholeReplyParser
    begun: float | None = None
    failure: ModelError | ReplyMalformed | None = None

    def feed(self, chunk: bytes) -> bool:
        """Process the events that *chunk* completes; after an error, which sets `failure`, return False, else True."""
        try:
            for data in self.cutter.feed(chunk):
                event = self.builder.feed(data)
                if self.begun is None and self.builder.has_begun:
                    self.begun = trio.current_time()
                    self.permit.begin()
                if self.listener is not None:
                    self.listener(event)
        except (ModelError, ReplyMalformed) as exc:
            self.failure = exc
        return self.failure is None


@asynccontextmanager
async def open_model_client(
    gate: Gateway,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    policy: RetryPolicy | None = None,
    silence: float = 120.0,
) -> AsyncIterator[ModelClient]:
    """Yield a client whose model calls the gateway *gate* admits; the end of the block closes it and its connections.

    Without *base_url* and *api_key* the SDK's environment variables decide. A call fails if no answer and no event
    arrives for *silence* seconds; pings count as events. Raises `ConfigInvalid` if there is no key.
    """
    base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL")
    is_loopback = base_url is not None and _is_loopback(base_url)
    if api_key is None and not any(os.environ.get(name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")):
        raise ConfigInvalid("ANTHROPIC_API_KEY", "not set; set it to your key, or to any text to use `coterie serve`")
    # A proxy from the environment cannot reach servers on the loopback interface.
    mounts = dict.fromkeys(("http://", "https://", "all://")) if is_loopback else {}
    transport = anthropic.DefaultAsyncHttpxClient(verify=ssl_context(is_loopback=is_loopback), mounts=mounts)
    sdk = anthropic.AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        http_client=transport,
        max_retries=0,  # the SDK's own retries would bypass the gateway
        timeout=httpx2.Timeout(None, connect=5.0),  # `_stream` limits silence over the whole call
    )
    sdk._platform = platform_name()  # noqa: SLF001 - otherwise the SDK starts a thread to find a constant value
    async with sdk:
        yield ModelClient(sdk, gate, policy or RetryPolicy(), silence, is_loopback)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
