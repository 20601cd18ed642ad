"""Promises about bodies: any text arrives unchanged."""

import sys

import attrs

from coterie.mailbox.conformance.harness import MailHarness, expect_error
from coterie.mailbox.errors import MailboxError

LARGEST = 1000 * 1000
PIECE = 100_000
SURROGATES = range(0xD800, 0xE000)
CONTROL = (
    "\n",
    "\r\n",
    "a\nb\n\nc\n",
    "\0",
    "\0\n\0",
    "\x1b[2J\x07\x7f",
    "\u2028\u2029\x85\x0b\x0c",
    "\ufeff",
    '","crc":"00000000"}\n{"v":1',
    '\n{"v":1,"crc":"00000000"}\n',
    "\\",
    '"',
    "\\ud83d",
)
"""Bodies that could break a line, a record or a terminal."""


async def promise_52_a_body_may_be_empty(mail: MailHarness) -> None:
    """A body may be empty."""
    await mail.send(body="")
    assert [envelope.body for envelope in await mail.read()] == [""], "it arrives"


async def promise_53_a_body_may_be_long(mail: MailHarness) -> None:
    """A body of a million bytes arrives, and so do the messages before and after it."""
    bodies = ["before", "x" * LARGEST, "after"]
    for body in bodies:
        await mail.send(body=body)
    await mail.restart()
    assert [envelope.body for envelope in await mail.read()] == bodies, "all three arrive whole"


async def promise_54_control_characters_are_text(mail: MailHarness) -> None:
    """Newlines, NUL, escapes and text that imitates a record arrive as text, one message each."""
    for body in CONTROL:
        await mail.send(body=body, summary=body)
    await mail.restart()
    read = await mail.read()
    assert [envelope.body for envelope in read] == list(CONTROL), "every body as it was"
    assert [envelope.summary for envelope in read] == list(CONTROL), "and every summary"


async def promise_55_all_of_unicode_is_text(mail: MailHarness) -> None:
    """Every Unicode character arrives unchanged; no text is normalised."""
    text = "".join(map(chr, (*range(SURROGATES.start), *range(SURROGATES.stop, sys.maxunicode + 1))))
    bodies = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    bodies += ["e\u0301", "\u00e9"]
    for body in bodies:
        await mail.send(body=body)
    assert [envelope.body for envelope in await mail.read()] == bodies, "code point by code point"


async def promise_56_a_lone_surrogate_is_refused(mail: MailHarness) -> None:
    """A body with a lone surrogate, which cannot be encoded, is rejected, and no part of it is stored."""
    whole = mail.new_message()
    half = attrs.evolve(whole, body="caf\udce9")
    # Signing encodes the body already, so the error usually comes before sending.
    await expect_error((MailboxError, UnicodeEncodeError), mail.transport.send(half))
    await mail.transport.send(whole)
    assert [envelope.body for envelope in await mail.read()] == [whole.body], "only what is text"
