"""`GET /v1/models`: the table of models as the API lists it."""

from collections.abc import Mapping
from typing import Any

from coterie.agents.loop.model.catalog import Model, ModelTable
from coterie.scenarios.api_server.request.errors import invalid_request, not_found

PAGE = 20
LARGEST_PAGE = 1000


def models_json(models: ModelTable, query: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of models, newest first; `has_more` refers to the direction of the cursor.

    Raises `ApiError` for an invalid limit or cursor.
    """
    listed = sorted(models.models.values(), key=lambda model: (model.created, model.id), reverse=True)
    limit = _limit(query.get("limit"))
    ids = [model.id for model in listed]
    after, before = query.get("after_id"), query.get("before_id")
    if after is None and before is not None:
        end = _cursor(ids, before, "before_id")
        start = max(0, end - limit)
        has_more = start > 0
    else:
        start = 0 if after is None else _cursor(ids, after, "after_id") + 1
        end = start + limit
        has_more = end < len(listed)
    page = listed[start:end]
    return {
        "data": [_item(model) for model in page],
        "has_more": has_more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def model_json(models: ModelTable, name: str) -> dict[str, Any]:
    """Return one model, by id or alias. Raises `ApiError` 404."""
    model = models.find(name)
    if model is None:
        raise not_found(f"model: {name[:200]}")
    return _item(model)


def _item(model: Model) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": f"{model.created.isoformat()}T00:00:00Z",
        "lifecycle": model.lifecycle,
        "max_input_tokens": model.window,
        "max_tokens": model.max_output,
        "line": model.id.split("-")[1],
        "capabilities": None,
        "deprecated_at": None,
        "retires_at": None,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= LARGEST_PAGE:
        raise invalid_request(f"limit: Input should be between 1 and {LARGEST_PAGE}")
    return int(text)


def _cursor(ids: list[str], name: str, parameter: str) -> int:
    if name not in ids:
        raise invalid_request(f"{parameter}: {name[:200]!r} is not in the list")
    return ids.index(name)
