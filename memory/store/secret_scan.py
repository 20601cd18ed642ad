"""Detection of keys, tokens and passwords in the text of a memory."""

import math
import re
from collections import Counter
from collections.abc import Iterator

import attrs


@attrs.frozen
class Secret:
    """Type and line of a secret that was found in a text; the value of the secret is not kept."""

    kind: str
    """Type of the secret with its article, such as `an AWS access key`."""
    line: int
    """Line number of the secret in the text, from 1."""


@attrs.frozen
class _Shape:
    """One type of secret, such as a GitHub token, and the pattern that finds it in a text."""

    kind: str
    marks: str
    """Lower-case strings separated by spaces, one of which must occur in the text; this quick test skips most texts."""
    pattern: re.Pattern[str]
    is_sure: bool = True
    """True if a match is certainly a secret; if False, the matched value must also look random."""


def _shape(kind: str, marks: str, pattern: str) -> _Shape:
    return _Shape(kind, marks, re.compile(rf"(?P<value>{pattern})"))


_NAME = r"password|passwd|passphrase|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]?key|credentials?"
# If several patterns match the same text, the first one names it.
_SHAPES = (
    _shape(
        "a private key",
        "private",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:\s{0,4}[A-Za-z0-9+/=]{10,100})?",
    ),
    _shape("an Anthropic key", "sk-ant-", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    _shape("an API key", "sk-", r"\bsk-(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{20,}"),
    _shape("an AWS access key", "akia asia abia acca", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    _shape(
        "a GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})",
    ),
    _shape("a GitLab token", "glpat- gldt- glrt- glsoat-", r"\bgl(?:pat|dt|rt|soat)-[A-Za-z0-9_-]{20,}"),
    _shape("a Slack token", "xox", r"\bxox[abceoprs]-[A-Za-z0-9-]{10,}"),
    _shape("a Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/\w+/\w+/\w{16,}"),
    _shape("a Google API key", "aiza", r"\bAIza[A-Za-z0-9_-]{35}"),
    _shape("a SendGrid key", "sg.", r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _shape("a Stripe key", "sk_ rk_", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _shape("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}"),
    _shape("a PyPI token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{50,}"),
    _shape("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    _shape("a JSON web token", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _Shape(
        "a password in an address",
        "://",
        re.compile(r"://[^\s/:@]{1,100}:(?P<value>[^\s/@]{6,200})@"),
    ),
    _Shape(
        "an authorization header",
        "authorization",
        re.compile(
            r"""authorization["'`*\\]{0,3}\s{0,3}[:=][\s"'`*\\]{0,6}(?:bearer|basic|token)\s{1,3}"""
            r"""(?P<value>[\w.~+/=-]{16,500})""",
            re.IGNORECASE,
        ),
        is_sure=False,
    ),
    # Three digits tell a token from a word such as `token-based-access-v2`.
    _Shape(
        "a bearer token",
        "bearer",
        re.compile(r"""\bbearer[\s"'`]{1,3}(?P<value>(?=(?:[^\s\d]{0,100}\d){3})[\w.~+/=-]{20,500})""", re.IGNORECASE),
        is_sure=False,
    ),
    _Shape(
        "a password or token",
        "pass secret token key credential",
        re.compile(
            rf"""(?:{_NAME})[\w-]{{0,20}}["'`*]{{0,3}}\s{{0,3}}(?:[:=]|=>|\bis\b)[\s"'`*>]{{0,5}}"""
            r"""(?P<value>[^\s"'`*,;]{8,500})""",
            re.IGNORECASE,
        ),
        is_sure=False,
    ),
)
_PLACEHOLDER = re.compile(
    r"[<>{}$%()\[\]]|\.\.\.|\N{HORIZONTAL ELLIPSIS}|(.)\1{5}|example|placeholder|redacted|dummy|changeme|your[-_]",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(r".*://|.*[/\\].*[/\\.]|[\w.-]+\.(?:md|py|json|toml|ya?ml|txt|env)\b|\d{4}-\d\d-\d\d")
"""Matches a value that is no secret although it looks random: an address, a path, a file name or a date."""
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Matches characters that a reader does not see, such as zero-width spaces. They would hide a secret from a pattern."""
_RANDOM = 3.0
"""Minimum entropy, in bits per character, of a value after `token:` or `password:` that counts as random."""


def find_secrets(text: str) -> list[Secret]:
    """Return the keys, tokens and passwords in *text*, by line; placeholders such as `sk-...` do not count."""
    return new_secrets(text, "")


def new_secrets(text: str, base: str) -> list[Secret]:
    """Return the secrets in *text*, by line, except those that already occur in *base*, the text before an edit."""
    text, base = _UNSEEN.sub("", text), _UNSEEN.sub("", base)
    found = ((text.count("\n", 0, at) + 1, kind) for kind, at, value in _values(text) if value not in base)
    return [Secret(kind, line) for line, kind in sorted(found)]


def _values(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield the type, the offset and the value of each secret in *text*."""
    lowered = text.lower()
    ends: dict[int, int] = {}
    for shape in _SHAPES:
        if not any(mark in lowered for mark in shape.marks.split()):
            continue
        for match in shape.pattern.finditer(text):
            at, value = match.start("value"), match["value"]
            is_known = any(start <= at < end for start, end in ends.items())
            is_secret = not _PLACEHOLDER.search(value) and (shape.is_sure or _is_random(value))
            if not is_known and (is_secret or value.startswith("-----BEGIN")):
                ends[at] = match.end("value")
                yield shape.kind, at, value


def _is_random(value: str) -> bool:
    """True if *value* looks random: digits and letters with high entropy, and no address, path, file name or date."""
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)) or _NO_SECRET.match(value):
        return False
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
    return bits >= _RANDOM
