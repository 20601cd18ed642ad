"""Hosts that may be fetched, and the lookup of their addresses."""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.settings import Settings
from coterie.errors import ConfigInvalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
EXAMPLE = "docs.python.org, *.example.org, localhost:8000 or 10.0.0.0/8"
PORTS = {"http": 80, "https": 443}
LONGEST = 2_000
"""Characters of an address of the web."""
EVERY_HOST = "*"

_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_ENTRY = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?")


@attrs.frozen(kw_only=True)
class WebAddress:
    """An address that can be asked for, in its parts."""

    scheme: str
    host: str
    """In small letters, as it is asked for in the name system; an IPv6 address without brackets."""
    port: int
    rest: str
    """Path and query."""

    @classmethod
    def parse(cls, url: str) -> "WebAddress":
        """Read *url*. Raises `ToolFailed` for what cannot be fetched."""
        if len(url) > LONGEST or not url.isprintable() or " " in url:
            raise ToolFailed(
                f"The address is longer than {LONGEST} characters, or has characters that must be escaped."
            )
        try:
            parts = urlsplit(url)
            host, port = _host(parts), parts.port
        except ValueError as exc:
            raise ToolFailed(f"{url} is not an address of the web: {exc}") from exc
        if parts.scheme not in PORTS:
            raise ToolFailed(f"{url} cannot be fetched: an address begins with https:// or http://")
        if parts.username is not None or parts.password is not None:
            raise ToolFailed("An address with a user's name or password in it is not fetched. Leave them out.")
        rest = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(scheme=parts.scheme, host=host, port=port or PORTS[parts.scheme], rest=rest)

    @property
    def netloc(self) -> str:
        """Host and port, as a server is told."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.rest}"


@attrs.frozen(kw_only=True)
class HostList:
    """What one list of hosts allows."""

    entries: tuple[tuple[str | Network, int | None], ...]
    """Names, patterns or networks, each with the port that it is for; None for the usual ones."""

    @classmethod
    def parse(cls, texts: Sequence[str], sources: Iterable[str] = ()) -> "HostList":
        """Read a list of settings. Raises `ConfigInvalid` with the source of an entry that is none."""
        named = [*sources, *["web.hosts"] * len(texts)]
        return cls(entries=tuple(_entry(text, source) for text, source in zip(texts, named, strict=False)))

    def allows(self, address: WebAddress) -> bool:
        """Whether the host of *address*, at its port, is on the list."""
        literal = _literal(address.host)
        return any(
            _has_port(port, address) and (_names(entry, address.host) or _holds(entry, literal))
            for entry, port in self.entries
        )

    def allows_redirect(self, place: Address, address: WebAddress) -> bool:
        """Whether *place*, where the host of *address* is, may be connected to: what is not public must be listed."""
        return is_public(place) or any(
            _has_port(port, address) and _holds(entry, place) for entry, port in self.entries
        )

    def __str__(self) -> str:
        return ", ".join(f"{entry}:{port}" if port else str(entry) for entry, port in self.entries) or "none"


def is_public(place: Address) -> bool:
    """Whether *place* is one of the internet, and leads to no other one inside."""
    if isinstance(place, ipaddress.IPv6Address):
        inner = place.ipv4_mapped or place.sixtofour or _translated(place)
        if inner is not None:
            return is_public(inner)
    return place.is_global and not place.is_multicast


def _translated(place: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a translator would make of *place*."""
    is_translated = place in ipaddress.IPv6Network("64:ff9b::/96")
    return ipaddress.IPv4Address(int(place) & 0xFFFFFFFF) if is_translated else None


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise ValueError("it has no host")
    if _literal(host) is not None:
        return host
    name = host.encode("idna").decode().lower()
    if not _NAME.fullmatch(name) or name.startswith("*"):
        raise ValueError(f"{host!r} is not the name of a host")
    return name


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _entry(text: str, source: str) -> tuple[str | Network, int | None]:
    wanted = text.strip().lower()
    try:
        return ipaddress.ip_network(wanted), None
    except ValueError:
        match = _ENTRY.fullmatch(wanted)
    if match is not None:
        name, port = match[1].strip("[]"), int(match[2]) if match[2] else None
        try:
            return ipaddress.ip_network(name), port
        except ValueError:
            if name == EVERY_HOST or _NAME.fullmatch(name):
                return name, port
    raise ConfigInvalid(source, f"web.hosts has {text!r}, which is no host; write {EXAMPLE}")


def _has_port(port: int | None, address: WebAddress) -> bool:
    return address.port == (PORTS[address.scheme] if port is None else port)


def _names(entry: str | Network, host: str) -> bool:
    if not isinstance(entry, str) or _literal(host) is not None:
        return False
    return entry in (host, EVERY_HOST) or (entry.startswith("*.") and host.endswith(entry[1:]))


def _holds(entry: str | Network, place: Address | None) -> bool:
    if place is None or isinstance(entry, str):
        return False
    return place.version == entry.version and place in entry


MOST = 4
"""Addresses of a host that are tried."""


async def resolve_addresses(address: WebAddress, hosts: Sequence[HostList]) -> list[Address]:
    """The addresses of its host, in the order of the name system.

    Raises `ToolFailed` if there is none, or one among them is not for everyone and not listed: a name that leads inside
    is not to be trusted for the rest.
    """
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ToolFailed(f"There is no host {address.host}: {exc.strerror}") from exc
    places = list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
    if closed := next(
        (place for place in places if not all(each.allows_redirect(place, address) for each in hosts)), None
    ):
        raise ToolFailed(
            f"{address.host} is at {closed}, which is no public address. The user could list that address itself in "
            "web.hosts."
        )
    return places[:MOST]


def hosts_from_settings(settings: Settings) -> HostList:
    """The hosts that *settings* list. Raises `ConfigInvalid`."""
    return HostList.parse(settings.web.hosts, settings.item_sources("web.hosts"))
