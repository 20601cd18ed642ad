"""Serialized request bodies sent by the real SDK."""

import anthropic
from anthropic.types import Message

from tests.conformance.cases import Bill


async def send_raw(sdk: anthropic.AsyncAnthropic, body: bytes, agent: str = "main") -> Bill:
    """Send *body*, which requests a whole reply, and return the bill of its input."""
    headers = {"content-type": "application/json", "x-coterie-agent": agent}
    message = await sdk.post("/v1/messages", cast_to=Message, content=body, options={"headers": headers})
    return Bill.of(message.usage.to_dict())
