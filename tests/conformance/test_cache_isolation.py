import attrs
import pytest

from tests.conformance.cases import MESSAGES, Api, Bill, layered, marked, rule, text, user
from tests.embedded_server import open_sdk


@rule("prompt caching / isolation: organizations and workspaces share nothing")
async def test_another_key_reads_nothing(api: Api) -> None:
    """The server treats each key as a separate workspace."""
    await api.ask(**layered())
    async with open_sdk(api.served, key="another-key") as client:
        other = attrs.evolve(api, client=client)
        assert await other.ask(**layered()) == Bill(write_5m=MESSAGES)
        assert await other.ask(**layered()) == Bill(read=MESSAGES)


@rule("prompt caching / isolation: two clients with one key share their entries")
async def test_another_client_with_the_same_key_reads(api: Api) -> None:
    await api.ask(**layered())
    async with open_sdk(api.served) as client:
        assert await attrs.evolve(api, client=client).ask(**layered()) == Bill(read=MESSAGES)


@rule("prompt caching / isolation: models share nothing, whatever the order of requests")
async def test_each_model_has_its_own_entries(api: Api) -> None:
    for expected in (Bill(write_5m=600), Bill(read=600)):
        for model in ("claude-opus-5", "claude-fable-5", "claude-sonnet-5-5"):
            assert await api.ask(model=model, messages=[user(marked(text(600)))]) == expected


@pytest.mark.parametrize(
    ("alias", "dated"),
    [
        ("claude-opus-4-5", "claude-opus-4-5-20251101"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
    ],
)
@rule("models / aliases: an alias and its dated id are one model with one cache")
async def test_an_alias_reads_what_the_dated_id_wrote(api: Api, alias: str, dated: str) -> None:
    request = {"messages": [user(marked(text(5_000)))]}
    reply = await api.send(model=dated, **request)
    assert (reply["model"], Bill.of(reply["usage"])) == (dated, Bill(write_5m=5_000))
    assert await api.ask(model=alias, **request) == Bill(read=5_000)


@rule("prompt caching / branches: conversations that part share what came before")
async def test_a_diverging_conversation_leaves_the_shared_prefix_alone(api: Api) -> None:
    """Two conversations with one system prompt alternate."""
    for expected in (0, MESSAGES):
        assert (await api.ask(**layered())).read == expected
        other = layered(messages=[user(marked(text(9, "o")))])
        assert (await api.ask(**other)).read == (670 if expected == 0 else 679)
