"""Where a host is: looked up once, and only what may be connected to."""

import socket
from collections.abc import Sequence
from ipaddress import ip_address

import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.web.hosts import Address, Hosts, WebAddress

MOST = 4
"""Addresses of a host that are tried."""


async def places_of(address: WebAddress, hosts: Sequence[Hosts]) -> list[Address]:
    """The addresses of its host, in the order of the name system.

    Raises `ToolFailed` if there is none, or one among them is not for everyone and not listed: a name that leads inside
    is not to be trusted for the rest.
    """
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ToolFailed(f"There is no host {address.host}: {exc.strerror}") from exc
    places = list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
    if closed := next((place for place in places if not all(each.opens(place, address) for each in hosts)), None):
        raise ToolFailed(
            f"{address.host} is at {closed}, which is no public address. The user could list that address itself in "
            "web.hosts."
        )
    return places[:MOST]
