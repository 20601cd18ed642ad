"""Fetching a page: one request to a checked address, within limits of size and time."""

from collections.abc import Sequence
from urllib.parse import urljoin

import attrs
import httpx2
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.web.hosts import Address, HostList, WebAddress, resolve_addresses

TIME_LIMIT = 30.0
"""Seconds for all of it: looking the host up, redirects, and the last byte."""
LARGEST = 5 * 1024 * 1024
"""Bytes of a page, unpacked."""
CHUNK = 64 * 1024
MOST_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {
    "User-Agent": "coterie",
    "Accept": "text/markdown, text/html, text/plain, application/json;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


@attrs.frozen(kw_only=True)
class HttpResponse:
    """What a server sent."""

    url: str
    """Where it was found in the end."""
    status: int
    content_type: str
    body: bytes
    is_cut: bool
    """Whether there was more than is fetched."""


@attrs.frozen(kw_only=True)
class Redirected:
    """A redirect to another host, which is somebody's decision."""

    url: str


async def fetch(
    address: WebAddress, hosts: Sequence[HostList], time_limit: float = TIME_LIMIT
) -> HttpResponse | Redirected:
    """Ask for *address*, which each of *hosts* must allow, and follow redirects on its host.

    Nothing is tried twice. Raises `ToolFailed` with the reason if there is no answer.
    """
    # Made where it is needed: importing it takes the SDK along.
    from coterie.agents.loop.model.client_warmup import ssl_context  # noqa: PLC0415

    try:
        with trio.fail_after(time_limit):
            async with httpx2.AsyncClient(
                verify=ssl_context(is_loopback=False), timeout=None, trust_env=False, headers=HEADERS
            ) as client:
                return await _follow(client, address, hosts)
    except trio.TooSlowError as exc:
        raise ToolFailed(f"{address} did not answer within {time_limit:g} seconds.") from exc
    except (httpx2.HTTPError, OSError) as exc:
        raise ToolFailed(f"{address} could not be fetched: {exc or type(exc).__name__}") from exc


async def _follow(
    client: httpx2.AsyncClient, address: WebAddress, hosts: Sequence[HostList]
) -> HttpResponse | Redirected:
    for _ in range(MOST_REDIRECTS + 1):
        answer, target = await _ask(client, address, hosts)
        if target is None:
            return answer
        further = WebAddress.parse(urljoin(str(address), target))
        if further.host != address.host or not all(each.allows(further) for each in hosts):
            return Redirected(url=str(further))
        address = further
    raise ToolFailed(f"{address} redirects more than {MOST_REDIRECTS} times.")


async def _ask(
    client: httpx2.AsyncClient, address: WebAddress, hosts: Sequence[HostList]
) -> tuple[HttpResponse, str | None]:
    """The answer, and where it redirects to if it does."""
    places = await resolve_addresses(address, hosts)
    for number, place in enumerate(places):
        try:
            return await _ask_at(client, address, place)
        except httpx2.ConnectError:
            if number == len(places) - 1:
                raise
    raise AssertionError("there is a place, or `resolve_addresses` has raised")


async def _ask_at(client: httpx2.AsyncClient, address: WebAddress, place: Address) -> tuple[HttpResponse, str | None]:
    # By its number, so that nobody can give another answer for the name in between; the name is what the server is
    # told, and what its certificate must be for.
    target = f"[{place}]" if place.version == 6 else str(place)
    url = f"{address.scheme}://{target}:{address.port}{address.rest}"
    extensions = {"sni_hostname": address.host}
    async with client.stream("GET", url, headers={"Host": address.netloc}, extensions=extensions) as response:
        location = response.headers.get("location")
        if response.status_code in REDIRECTS and location:
            return HttpResponse(
                url=str(address), status=response.status_code, content_type="", body=b"", is_cut=False
            ), location
        body, is_cut = await _read(response)
    return HttpResponse(
        url=str(address),
        status=response.status_code,
        content_type=response.headers.get("content-type", ""),
        body=body,
        is_cut=is_cut,
    ), None


async def _read(response: httpx2.Response) -> tuple[bytes, bool]:
    body = bytearray()
    # A stream that is simply left is not closed all the way down; one that is cancelled is, from within.
    with trio.CancelScope() as reading:
        async for chunk in response.aiter_bytes(CHUNK):
            body += chunk[: LARGEST + 1 - len(body)]
            if len(body) > LARGEST:
                reading.cancel()
    return bytes(body[:LARGEST]), len(body) > LARGEST
