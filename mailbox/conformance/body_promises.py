"""Promises about bodies: any text arrives as it was written."""

import sys

import attrs

from coterie.mailbox.conformance.harness import MailHarness, expect_error, promise
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


@promise()
async def promise_52_a_body_may_be_empty(post: MailHarness) -> None:
    """A body may be empty."""
    await post.send(body="")
    assert [envelope.body for envelope in await post.read()] == [""], "it arrives"


@promise()
async def promise_53_a_body_may_be_long(post: MailHarness) -> None:
    """A body of a million bytes arrives, and so does what is sent around it."""
    bodies = ["before", "x" * LARGEST, "after"]
    for body in bodies:
        await post.send(body=body)
    await post.restart()
    assert [envelope.body for envelope in await post.read()] == bodies, "all three arrive whole"


@promise()
async def promise_54_control_characters_are_text(post: MailHarness) -> None:
    """Newlines, NUL, escapes and text that imitates a record arrive as text, one message each."""
    for body in CONTROL:
        await post.send(body=body, summary=body)
    await post.restart()
    read = await post.read()
    assert [envelope.body for envelope in read] == list(CONTROL), "every body as it was"
    assert [envelope.summary for envelope in read] == list(CONTROL), "and every summary"


@promise()
async def promise_55_all_of_unicode_is_text(post: MailHarness) -> None:
    """Every character of Unicode arrives as it was written; nothing is normalised."""
    text = "".join(map(chr, (*range(SURROGATES.start), *range(SURROGATES.stop, sys.maxunicode + 1))))
    bodies = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    bodies += ["e\u0301", "\u00e9"]
    for body in bodies:
        await post.send(body=body)
    assert [envelope.body for envelope in await post.read()] == bodies, "code point by code point"


@promise()
async def promise_56_half_a_character_is_refused(post: MailHarness) -> None:
    """A body with a lone surrogate, which no bytes can hold, is refused, and nothing of it is stored."""
    whole = post.new_message()
    half = attrs.evolve(whole, body="caf\udce9")
    # Signing needs the bytes already, so mostly the sender finds out before it sends.
    await expect_error((MailboxError, UnicodeEncodeError), post.transport.send(half))
    await post.transport.send(whole)
    assert [envelope.body for envelope in await post.read()] == [whole.body], "only what is text"
