"""`GET /v1/models` over HTTP, with the SDK's types enforced."""

import pytest

from coterie.agents.loop.model.catalog import load_models
from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ask, open_strict_sdk

MODELS = load_models()


async def test_every_model_is_listed_once_newest_first_whatever_the_page() -> None:
    async with open_served(models=MODELS) as served, open_strict_sdk(served) as client:
        listed = {limit: [model async for model in client.models.list(limit=limit)] for limit in (1, 7, 1000)}
    ids = [model.id for model in listed[1000]]
    assert sorted(ids) == sorted(MODELS.models)
    assert all([model.id for model in models] == ids for models in listed.values())
    assert listed[1] == listed[1000]
    dates = [model.created_at for model in listed[1000]]
    assert dates == sorted(dates, reverse=True)


async def test_pages_go_both_ways() -> None:
    async with open_served(models=MODELS) as served, open_strict_sdk(served) as client:
        ids = [model.id async for model in client.models.list()]
        page = await client.models.list(limit=3, after_id=ids[1])
        assert [model.id for model in page.data] == ids[2:5]
        assert (page.first_id, page.last_id, page.has_more) == (ids[2], ids[4], True)
        page = await client.models.list(limit=3, before_id=ids[5])
        assert ([model.id for model in page.data], page.has_more) == (ids[2:5], True)
        page = await client.models.list(limit=5, before_id=ids[2])
        assert ([model.id for model in page.data], page.has_more) == (ids[:2], False)
        page = await client.models.list(limit=3, after_id=ids[-2])
        assert ([model.id for model in page.data], page.has_more) == ([ids[-1]], False)
        page = await client.models.list(limit=3, after_id=ids[-1])
        assert (page.data, page.has_more) == ([], False)


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-haiku-4-5-20251001"])
async def test_a_model_is_found_by_id_and_by_alias(name: str) -> None:
    async with open_served(models=MODELS) as served, open_strict_sdk(served) as client:
        model = await client.models.retrieve(name)
    known = MODELS.get(name)
    assert (model.id, model.display_name, model.lifecycle) == ("claude-haiku-4-5", known.name, known.lifecycle)
    assert (model.max_input_tokens, model.max_tokens) == (known.window, known.max_output)
    assert model.created_at.date() == known.created


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "limit: Input should be between 1 and 1000"),
        *((f"limit={limit}", "limit:") for limit in ("1001", "many", "-1", "9" * 5000)),
        ("after_id=none", "after_id: 'none' is not in the list"),
        ("before_id=", "before_id: '' is not in the list"),
    ],
)
async def test_invalid_page_parameters_are_refused(query: str, words: str) -> None:
    async with open_served() as served:
        answer = await ask(served, path=f"/v1/models?{query}", method="GET")
    assert answer.status == 400
    assert answer.error.startswith(words)
