"""How an answer leaves the server: whole or as a stream, at its own pace, or struck by a fault."""

from typing import Any

import msgspec
import trio

from coterie.scenarios.server.api.call import Call
from coterie.scenarios.server.api.compose import Composed
from coterie.scenarios.server.api.exchange import Exchange
from coterie.scenarios.server.api.stream import error_event, message_events
from coterie.scenarios.server.edge.http import ClientGone, Responder
from coterie.scenarios.server.errors import ApiError
from coterie.scenarios.server.script.choice import Chosen
from coterie.scenarios.server.script.faults import ERROR_STATUS, Fault

STATUS = {"rate_limit": (429, "rate_limit_error"), "overloaded": (529, "overloaded_error"), "error": (500, "api_error")}
"""Fault kind -> the answer it gives instead of a reply."""


async def strike_before(fault: Fault, respond: Responder) -> None:
    """Carry out a fault that takes the place of an answer; one that strikes later does nothing here.

    Raises `ApiError` for an error answer and `ClientGone` once the connection is dropped.
    """
    if fault.kind == "disconnect":
        await respond.abort()
        raise ClientGone
    if fault.kind in STATUS:
        status, kind = STATUS[fault.kind]
        headers = (
            () if fault.retry_after is None else (("retry-after", f"{fault.retry_after:.3f}".rstrip("0").rstrip(".")),)
        )
        kind = fault.error or kind
        raise ApiError(fault.status or status, kind, f"injected fault: {fault.kind}", headers)


async def deliver(
    exchange: Exchange,
    call: Call,
    message: dict[str, Any],
    composed: Composed,
    chosen: Chosen | None,
    fault: Fault | None,
) -> bool:
    """Send *message*; a fault that is left strikes in the middle of it.

    False if an error event came in place of its end.
    """
    if not call.stream:
        await _deliver_whole(exchange, message, fault)
        return True
    events = list(message_events(message, composed.cut_input))
    pace = chosen.reply.token_delay if chosen else 0.0
    respond = exchange.respond
    await respond.start(200, exchange.all_headers("text/event-stream; charset=utf-8"))
    if fault is not None:
        events, pace = await _strike_within(fault, events, pace, respond)
    exchange.record()
    await _write(respond, events, pace)
    await respond.finish()
    return fault is None or fault.kind != "error_event"


async def _deliver_whole(exchange: Exchange, message: dict[str, Any], fault: Fault | None) -> None:
    respond = exchange.respond
    match fault.kind if fault else None:
        case "cut":
            await respond.abort()
            raise ClientGone
        case "error_event":
            assert fault is not None
            kind = fault.error or "overloaded_error"
            raise ApiError(ERROR_STATUS[kind], kind, "injected fault: error_event")
        case "stall" | "slow":
            assert fault is not None
            async with respond.while_connected():
                await trio.sleep(fault.seconds if fault.seconds is not None else float("inf"))
    await exchange.send(msgspec.json.encode(message))


async def _strike_within(
    fault: Fault, events: list[bytes], pace: float, respond: Responder
) -> tuple[list[bytes], float]:
    """Carry out *fault* and return the events still to be written, and how fast."""
    if fault.kind == "slow":
        return events, fault.seconds or pace
    await _write(respond, events[: fault.after], pace)
    match fault.kind:
        case "cut":
            await respond.abort()
            raise ClientGone
        case "error_event":
            return [error_event(fault.error or "overloaded_error", "injected fault: error_event")], 0.0
        case "stall":
            async with respond.while_connected():
                await trio.sleep(fault.seconds if fault.seconds is not None else float("inf"))
    return events[fault.after :], pace


async def _write(respond: Responder, events: list[bytes], pace: float) -> None:
    if not pace:
        await respond.write(b"".join(events))
        return
    async with respond.while_connected():
        for event in events:
            await respond.write(event)
            await trio.sleep(pace)
