"""Secrets are found by their form; placeholders are not."""

import random
import string

import pytest

from coterie.memory.store.secret_scan import Secret, find_secrets, new_secrets

RANDOM = random.Random(7)


def drawn(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Return random characters like those of a key, so that no scanner reports this file as a leak."""
    return "".join(RANDOM.choices(alphabet, k=length))


SECRETS = {
    "an Anthropic key": f"sk-ant-api03-{drawn(90)}",
    "an API key": f"sk-proj-{drawn(48)}",
    "an AWS access key": f"AKIA{drawn(16, string.ascii_uppercase + '234567')}",
    "a GitHub token": f"ghp_{drawn(36)}",
    "a GitLab token": f"glpat-{drawn(20)}",
    "a Slack token": f"xoxb-{drawn(12, string.digits)}-{drawn(24)}",
    "a Slack webhook": f"https://hooks.slack.com/services/T{drawn(8)}/B{drawn(8)}/{drawn(24)}",
    "a Google API key": f"AIza{drawn(35)}",
    "a SendGrid key": f"SG.{drawn(22)}.{drawn(43)}",
    "a Stripe key": f"sk_live_{drawn(24)}",
    "an npm token": f"npm_{drawn(36)}",
    "a PyPI token": f"pypi-{drawn(80)}",
    "a Hugging Face token": f"hf_{drawn(34)}",
    "a JSON web token": f"eyJ{drawn(30)}.eyJ{drawn(60)}.{drawn(43)}",
    "a private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{drawn(64)}\n",
    "a password in an address": f"postgres://app:{drawn(12)}@db.internal/app",
    "an authorization header": f"Authorization: Bearer {drawn(20)}123{drawn(17)}",
    "a bearer token": f"the bearer {drawn(20)}123{drawn(17)}",
    "a password or token": f"password = {drawn(16)}",
}
UNSEEN = "\x07\x7f\x85\xad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u202e\u2060\u206a\u3164\ufe0f\ufeff\U000e0041"


@pytest.mark.parametrize("kind", SECRETS)
def test_secret_is_found_with_its_line_if_it_is_new(kind: str) -> None:
    text = f"# Deploying\n\nthe staging machine takes {SECRETS[kind]} as it is\n"
    assert find_secrets(text) == [Secret(kind, 3)]
    assert new_secrets(f"one line more\n{text}", text) == []
    assert new_secrets(f"{text}again: ghp_{drawn(36)}\n", text) == [Secret("a GitHub token", text.count("\n") + 1)]


@pytest.mark.parametrize(
    "text",
    [
        "export ANTHROPIC_API_KEY=sk-...",
        "sk-ant-api03-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "token: <token>",
        "token = $GITHUB_TOKEN",
        "password: {{ vault.db_password }}",
        "api_key = os.environ['API_KEY_2']",
        "password: your-password-123",
        "AKIAIOSFODNN7EXAMPLE",
        "The token is rotated every 90 days",
        "the secret is kept in 1password, vault `infra`",
        "token: see docs/auth/tokens2.md",
        "access key: aaaaaaaaaaaaaaaa1",
        "https://user:@host/path",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 broke it",
        "max_tokens: 8000, token_budget=200000",
        "the sk-learn-based-classifier is slow",
        "secret: 2026-11-16",
        "credentials: ~/.config/app2/credentials.json",
        "Send bearer tokens in the Authorization header; bearer token-based-access-v2 is the default.",
        "Authorization: Bearer <token>",
        'curl -H "Authorization: Bearer $GITHUB_TOKEN_2"',
        "Authorization: Bearer your-token-goes-here-123",
        "The class SG.mail.settings sends mail.",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 and \U0001f468\u200d\U0001f469\u200d\U0001f467 need joiners",
    ],
)
def test_harmless_text_is_not_a_secret(text: str) -> None:
    assert find_secrets(text) == []


@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("kind", sorted(SECRETS.keys() - {"a private key"}))
def test_unseen_character_does_not_hide_a_secret(kind: str, unseen: str) -> None:
    text = f"first line\n{unseen.join(SECRETS[kind])}\n"
    assert find_secrets(text) == [Secret(kind, 2)]
    assert new_secrets(text, text.replace(unseen, "")) == []


@pytest.mark.parametrize(
    "header",
    [
        'curl -H "Authorization: Bearer {}"',
        "curl -H 'authorization: bearer {}'",
        '{{"Authorization": "Bearer {}"}}',
        '"{{\\"Authorization\\": \\"Bearer {}\\"}}"',
        "Authorization: 'Bearer {}'",
        "AUTHORIZATION=Bearer {}",
        "Proxy-Authorization: Basic {}",
        "**Authorization:** token {}",
    ],
)
def test_authorization_header_is_a_secret_in_every_spelling(header: str) -> None:
    assert find_secrets(header.format(f"{drawn(20)}7{drawn(12)}")) == [Secret("an authorization header", 1)]


@pytest.mark.parametrize("named", ["password", "DB_PASSWORD", "api-key", "**Token**", '"client_secret"', "access key"])
@pytest.mark.parametrize("joined", [": ", " = ", "=", ': "', ": `"])
def test_random_value_after_a_secret_name_is_a_secret(named: str, joined: str) -> None:
    assert find_secrets(f"{named}{joined}{drawn(20)}7") == [Secret("a password or token", 1)]


def test_secret_patterns_run_in_linear_time() -> None:
    """A pattern with exponential backtracking would not finish."""
    for piece in ("token: ", "a", "-----BEGIN A ", "://a:", "eyJ", "sk-", "\n", "key is "):
        assert isinstance(find_secrets(piece * (100_000 // len(piece))), list)
