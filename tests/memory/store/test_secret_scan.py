"""Secrets are found by their shape; what only stands for one is not."""

import random
import string

import pytest

from coterie.memory.store.secret_scan import Secret, find_secrets, new_secrets

RANDOM = random.Random(7)


def drawn(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Characters that look like a key; never written down, so that no scanner takes this file for a leak."""
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
    "a Stripe key": f"sk_live_{drawn(24)}",
    "an npm token": f"npm_{drawn(36)}",
    "a PyPI token": f"pypi-{drawn(80)}",
    "a Hugging Face token": f"hf_{drawn(34)}",
    "a JSON web token": f"eyJ{drawn(30)}.eyJ{drawn(60)}.{drawn(43)}",
    "a private key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{drawn(64)}\n",
    "a password in an address": f"postgres://app:{drawn(12)}@db.internal/app",
    "a password or token": f"password = {drawn(16)}",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_in_its_line(kind: str) -> None:
    text = f"# Deploying\n\nthe staging machine takes {SECRETS[kind]} as it is\n"
    assert find_secrets(text) == [Secret(kind, 3)]


@pytest.mark.parametrize("kind", SECRETS)
def test_what_stood_there_before_is_not_found_again(kind: str) -> None:
    text = f"old: {SECRETS[kind]}\n"
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
    ],
)
def test_what_is_no_secret_may_be_written(text: str) -> None:
    assert find_secrets(text) == []


@pytest.mark.parametrize("named", ["password", "DB_PASSWORD", "api-key", "**Token**", '"client_secret"', "access key"])
@pytest.mark.parametrize("joined", [": ", " = ", "=", ': "', ": `"])
def test_a_value_that_looks_drawn_is_one_behind_a_name_that_says_so(named: str, joined: str) -> None:
    assert find_secrets(f"{named}{joined}{drawn(20)}") == [Secret("a password or token", 1)]


def test_no_text_makes_a_pattern_try_again_and_again() -> None:
    """With a pattern that does, this would not end."""
    for piece in ("token: ", "a", "-----BEGIN A ", "://a:", "eyJ", "sk-", "\n", "key is "):
        assert isinstance(find_secrets(piece * (100_000 // len(piece))), list)
