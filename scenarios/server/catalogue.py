"""`GET /v1/models`: the table of models as the API lists it."""

from collections.abc import Mapping
from typing import Any

from coterie.agents.models import Model, ModelTable
from coterie.scenarios.server.errors import invalid_request, not_found

PAGE = 20
LARGEST_PAGE = 1000


def models_json(models: ModelTable, query: Mapping[str, str]) -> dict[str, Any]:
    """One page of models, newest first. Raises `ApiError` for a limit or cursor that cannot be."""
    listed = sorted(models.models.values(), key=lambda model: (model.created, model.id), reverse=True)
    limit = _limit(query.get("limit"))
    ids = [model.id for model in listed]
    if (after := query.get("after_id")) is not None:
        start = _cursor(ids, after, "after_id") + 1
    elif (before := query.get("before_id")) is not None:
        start = max(0, _cursor(ids, before, "before_id") - limit)
    else:
        start = 0
    page = listed[start : start + limit]
    return {
        "data": [_item(model) for model in page],
        "has_more": start + limit < len(listed),
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def model_json(models: ModelTable, name: str) -> dict[str, Any]:
    """One model, by id or alias. Raises `ApiError` 404."""
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
        "capabilities": {},
        "deprecated_at": None,
        "retires_at": None,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return PAGE
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_PAGE:
        raise invalid_request(f"limit: Input should be between 1 and {LARGEST_PAGE}")
    return int(text)


def _cursor(ids: list[str], name: str, parameter: str) -> int:
    if name not in ids:
        raise invalid_request(f"{parameter}: {name[:200]!r} is not in the list")
    return ids.index(name)
