"""Who sends a request, read from its headers: both ways to authenticate, both API versions."""

from collections.abc import Mapping

from coterie.scenarios.server.api.call import Caller
from coterie.scenarios.server.errors import ApiError, invalid_request

VERSIONS = ("2023-06-01", "2026-10-21")


def read_caller(headers: Mapping[str, str]) -> Caller:
    """The caller of a request. Raises `ApiError`: 401 without a key, 400 for a version the API never had."""
    version = headers.get("anthropic-version", "")
    if version not in VERSIONS:
        known = " or ".join(VERSIONS)
        raise invalid_request(f"anthropic-version: header is required and must be {known}; got {version!r}")
    betas = headers.get("anthropic-beta", "")
    return Caller(
        key=_key(headers),
        version=version,
        betas=frozenset(name.strip() for name in betas.split(",") if name.strip()),
        agent=headers.get("x-coterie-agent"),
        incarnation=_number(headers, "x-coterie-incarnation"),
        purpose=headers.get("x-coterie-purpose", "turn"),
        turn=_number(headers, "x-coterie-turn"),
        retry=_number(headers, "x-stainless-retry-count") or 0,
    )


def _key(headers: Mapping[str, str]) -> str:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    key = headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    if not key:
        raise ApiError(401, "authentication_error", "x-api-key or authorization header is required")
    return key


def _number(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not value.isdecimal() or len(value) > 9:
        raise invalid_request(f"{name}: {value[:20]!r} is not a whole number")
    return int(value)
