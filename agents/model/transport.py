"""What a client needs and is slow to make: made once in a process, and shared by all that is forked from it."""

import os
import ssl
from functools import cache

import httpx2
from anthropic._base_client import Platform, get_platform


def ssl_context(*, is_loopback: bool) -> ssl.SSLContext:
    """What connections are checked with: the machine's certificates, or what the environment names instead.

    On loopback nothing is checked, and nothing has to be read.
    """
    return _unchecked() if is_loopback else _checking(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def ready_ssl_context() -> None:
    """Have the one for the real API made, which takes a quarter of a second."""
    ssl_context(is_loopback=False)


@cache
def platform_name() -> Platform:
    """What the SDK tells the API about this machine."""
    return get_platform()


@cache
def _checking(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()


@cache
def _unchecked() -> ssl.SSLContext:
    return httpx2.create_ssl_context(verify=False)
