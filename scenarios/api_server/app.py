"""Embedded server, a local imitation of the Anthropic Messages API: routing, error responses and `/v1/models`."""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Model, ModelTable
from coterie.clock import Clock
from coterie.scenarios.api_server.api.exchange import ORGANIZATION, ApiExchange
from coterie.scenarios.api_server.api.messages_endpoint import MessagesEndpoint, ServerOptions
from coterie.scenarios.api_server.api.response_builder import IdGenerator
from coterie.scenarios.api_server.control_endpoint import PREFIX, ControlEndpoint
from coterie.scenarios.api_server.http.http_connection import ClientGone, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder
from coterie.scenarios.api_server.request.api_request import parse_caller
from coterie.scenarios.api_server.request.errors import ApiError, invalid_request, not_found
from coterie.scenarios.api_server.request.request_log import RequestLog, RequestLogEntry
from coterie.scenarios.api_server.script.http_faults import HttpFaultPlan
from coterie.scenarios.api_server.script.script_signals import ScriptSignals

Header = tuple[str, str]


@attrs.define(eq=False)
class EmbeddedServer:
    """Application that answers the HTTP requests of `serve_http`: the Messages API, and `/_coterie/` for tests."""

    options: ServerOptions
    clock: Clock = attrs.field(factory=Clock)
    watch: Callable[[RequestLogEntry], None] | None = None
    """Called with the log entry of each API request after its answer, for example to print the entry; None for no call.
    """
    bugs: list[str] = attrs.field(factory=list)
    """Tracebacks of unexpected exceptions in the server; tests assert that the list is empty."""
    log: RequestLog = attrs.field(init=False, factory=RequestLog)
    control: ControlEndpoint = attrs.field(init=False)
    _ids: IdGenerator = attrs.field(init=False)
    _messages: MessagesEndpoint = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        options = self.options
        faults = HttpFaultPlan(options.seed)
        signals = ScriptSignals()
        self._ids = IdGenerator(options.seed)
        self.control = ControlEndpoint(options.token, self.clock, faults, signals, self.log)
        self._messages = MessagesEndpoint(options, self._ids, faults, signals)

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """Answer one HTTP request through *respond*; an error is sent as JSON in the API's error format.

        Every answer has a `request-id` header. Raises `ClientGone` if the client disconnects.
        """
        if request.path.startswith(PREFIX):
            await self._answer_control(request, respond)
            return
        exchange = ApiExchange(request, respond, self.log, self._ids.request(), self.clock.now())
        try:
            await self._route(exchange)
        except ApiError as error:
            await self._refuse(exchange, error)
        except RecursionError:
            # Any rule may raise it: rules walk JSON that is nested as deep as the parser allows.
            await self._refuse(exchange, invalid_request("The request body is nested too deep."))
        except ClientGone:
            exchange.error = "client_gone"
            exchange.record()
            raise
        except Exception as exc:  # noqa: BLE001 - outermost frame of a request: a bug must not end other requests
            await self._refuse(exchange, self._bug(exc))
        finally:
            if self.watch is not None:
                self.watch(exchange.entry())

    def refusal(self, error: ApiError) -> tuple[Sequence[Header], bytes]:
        """Return the headers and JSON body of the error response for *error*, with a new request id."""
        return self._envelope(error, self._ids.request())

    async def _route(self, exchange: ApiExchange) -> None:
        request = exchange.request
        path = request.path.rstrip("/")
        if path in ("/v1/messages", "/v1/messages/count_tokens"):
            _need(request, "POST")
            exchange.caller = parse_caller(request.headers)
            answer = self._messages.count if path.endswith("count_tokens") else self._messages.answer
            await answer(exchange)
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            _need(request, "GET")
            parse_caller(request.headers)
            models = self.options.models
            name = path.removeprefix("/v1/models").lstrip("/")
            body = model_json(models, name) if name else models_json(models, request.query)
            await exchange.send(msgspec.json.encode(body))
        else:
            raise not_found(f"{request.method} {request.path[:200]}: there is no such endpoint; correct the path")

    async def _refuse(self, exchange: ApiExchange, error: ApiError) -> None:
        exchange.status, exchange.error = error.status, error.kind
        exchange.record()
        if exchange.respond.begun:
            await exchange.respond.abort()  # too late for a status: a half answer must not look whole
            return
        headers, body = self._envelope(error, exchange.request_id)
        await exchange.respond.send(error.status, headers, body)

    async def _answer_control(self, request: HttpRequest, respond: Responder) -> None:
        # Numbered separately, so that control requests do not change the ids of API requests.
        request_id = self._ids.request("control")
        status = 200
        headers: Sequence[Header] = _json_headers(request_id)
        try:
            body = self.control.answer(request)
        except ApiError as exc:
            status, (headers, body) = exc.status, self._envelope(exc, request_id)
        except Exception as exc:  # noqa: BLE001 - as in `handle`
            status, (headers, body) = 500, self._envelope(self._bug(exc), request_id)
        await respond.send(status, headers, body)

    def _bug(self, exc: Exception) -> ApiError:
        """Append the traceback of *exc* to `bugs`, print it to standard error, and return a 500 error for clients."""
        self.bugs.append("".join(traceback.format_exception(exc)))
        sys.stderr.write(self.bugs[-1])
        return ApiError(500, "api_error", f"the embedded server failed: {exc!r}")

    def _envelope(self, error: ApiError, request_id: str) -> tuple[Sequence[Header], bytes]:
        fields = {"type": error.kind, "message": error.message}
        body = msgspec.json.encode({"type": "error", "error": fields, "request_id": request_id})
        return [*_json_headers(request_id), *error.headers], body


def _json_headers(request_id: str) -> list[Header]:
    return [("content-type", "application/json"), ("request-id", request_id), ORGANIZATION]


def _need(request: HttpRequest, method: str) -> None:
    if request.method != method:
        raise ApiError(
            405, "invalid_request_error", f"{request.method} {request.path}: use {method}", (("allow", method),)
        )


PAGE = 20
LARGEST_PAGE = 1000


def models_json(models: ModelTable, query: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of the list of models, newest model first, for `GET /v1/models`.

    *query* may contain `limit`, and `after_id` or `before_id`: the id of the model just before or after the page.
    `has_more` is true if further models follow in this direction. Raises `ApiError` (400) for an invalid limit or id.
    """
    listed = sorted(models.models.values(), key=lambda model: (model.created, model.id), reverse=True)
    limit = _limit(query.get("limit"))
    ids = [model.id for model in listed]
    after, before = query.get("after_id"), query.get("before_id")
    if after is None and before is not None:
        end = _cursor(ids, before, "before_id")
        start = max(0, end - limit)
        has_more = start > 0
    else:
        start = 0 if after is None else _cursor(ids, after, "after_id") + 1
        end = start + limit
        has_more = end < len(listed)
    page = listed[start:end]
    return {
        "data": [_item(model) for model in page],
        "has_more": has_more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def model_json(models: ModelTable, name: str) -> dict[str, Any]:
    """Return the JSON of the model with this id or alias. Raises `ApiError` (404) if there is no such model."""
    model = models.find(name)
    if model is None:
        raise not_found(f"model: {name[:200]}")
    return _item(model)


def _item(model: Model) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": f"{model.created.isoformat()}T00:00:00Z",
        "lifecycle": model.lifecycle,
        "max_input_tokens": model.window,
        "max_tokens": model.max_output,
        "line": model.id.split("-")[1],
        "capabilities": None,
        "deprecated_at": None,
        "retires_at": None,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= LARGEST_PAGE:
        raise invalid_request(f"limit: Input should be between 1 and {LARGEST_PAGE}")
    return int(text)


def _cursor(ids: list[str], name: str, parameter: str) -> int:
    if name not in ids:
        raise invalid_request(f"{parameter}: {name[:200]!r} is not in the list")
    return ids.index(name)
