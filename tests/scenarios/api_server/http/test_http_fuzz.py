import contextlib

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.scenarios.api_server.http.http_peer import HASTY, assert_serves, connect, read_to_end, serving

VALID = (
    b'POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{"model":""}',
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nb;a=1\r\nhello world\r\n0\r\n\r\n",
    b"HEAD /%20%zz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.0\r\nA: b\r\n folded\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
)

STINGY = attrs.evolve(HASTY, body=10_000, header_bytes=2_000, headers_within=0.02, body_within=0.02, idle=0.02)

WORDS = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\x00", b"\xff", b" ", b":", b"%", b"?", b"[", b"CONNECT ", b"HEAD ", b"HTTP/9.9"),
    *(b"Content-Length: 99999999\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"ffffffff\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Upgrade: x\r\n"),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One or two good requests with cuts, repeats and foreign words in them."""
    request = b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(request)))
        end = draw(st.integers(start, min(len(request), start + 20)))
        new = draw(st.sampled_from(WORDS) | st.binary(max_size=4) | st.just(request[start:end] * 2))
        request = request[:start] + new + request[end:]
    return request


@attrs.frozen
class Visit:
    """Bytes that one client sends, in several writes, and then closes its side or not."""

    sent: bytes
    pause: int
    closes: bool


def visits(sent: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Visit]]:
    return st.lists(st.builds(Visit, sent, st.integers(0, 300), st.booleans()), min_size=1, max_size=25)


async def pay(port: int, visit: Visit) -> None:
    """Send, then wait for the end that must come; what came before it is an answer or nothing."""
    async with await connect(port) as stream:
        with contextlib.suppress(trio.BrokenResourceError):
            for part in (visit.sent[: visit.pause], visit.sent[visit.pause :]):
                await stream.send_all(part)
                await trio.lowlevel.checkpoint()
            if visit.closes:
                await stream.send_eof()
        with contextlib.suppress(trio.BrokenResourceError):
            answer = await read_to_end(stream)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


@pytest.mark.slow
@examples(45)
@given(visits(st.binary(max_size=4000)) | visits(mutated()))
def test_any_bytes_and_malformed_requests_end_in_an_answer_or_a_close(party: list[Visit]) -> None:
    """All clients connect together, so that their timeouts run in parallel; `serving` limits the total time."""

    async def main() -> None:
        async with serving(limits=STINGY) as port:
            async with trio.open_nursery() as nursery:
                for visit in party:
                    nursery.start_soon(pay, port, visit)
            await assert_serves(port)

    trio.run(main)
