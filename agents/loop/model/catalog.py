"""Table of models: context window, prices and limits of each model, and the cost of a call.

The numbers are in `models.toml` and in a file of the user that overrides it, because they change more often than code.
The embedded server (local imitation of the API) reads the same table.
"""

import datetime as dt
import functools
import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs

from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid
from coterie.paths import home_directory
from coterie.suggestions import closest_match

MODELS_FILE_VARIABLE = "COTERIE_MODELS"
MODEL_KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
MILLION = Decimal(1_000_000)
_TABLES = ("aliases", "betas", "defaults", "models")

Effort = Literal["low", "medium", "high", "xhigh", "max"]
Thinking = Literal["always", "adaptive", "extended"]
Section = Literal["tools", "system", "messages"]
"""Parts of a model request that contain blocks, in the order in which the API reads and caches them."""
Role = Literal["user", "assistant", "system"]
"""Author of a message: the value of its `role` in the API."""


@attrs.frozen(kw_only=True)
class Price:
    """Prices of a model in US dollars per million tokens, for prompts of up to *up_to* tokens (None: no limit)."""

    input: Decimal = attrs.field(converter=Decimal)
    output: Decimal = attrs.field(converter=Decimal)
    write_5m: Decimal = attrs.field(converter=Decimal)
    write_1h: Decimal = attrs.field(converter=Decimal)
    read: Decimal = attrs.field(converter=Decimal)
    up_to: int | None = None

    def of(self, usage: Usage) -> Decimal:
        """Return the exact cost, in dollars and without rounding, of the token counts *usage* at these prices."""
        return (
            usage.input * self.input
            + usage.output * self.output
            + usage.write_5m * self.write_5m
            + usage.write_1h * self.write_1h
            + usage.read * self.read
        ) / MILLION


@attrs.frozen(kw_only=True)
class Model:
    """Properties of one model, such as its prices and rejected parameters; `models.toml` explains each field."""

    id: str
    name: str
    created: dt.date
    prices: tuple[Price, ...]
    """Prices for each range of prompt sizes, smallest sizes first; the last range has no upper limit."""
    window: int
    max_output: int
    cache_minimum: int
    thinking: Thinking
    effort: str
    refuses: frozenset[str] = attrs.field(converter=frozenset)
    binds_thinking: bool
    strips_thinking: bool
    thinking_invalidates: Section
    lifecycle: Literal["active", "deprecated", "retired"] = "active"

    def effort_of(self, requested: Effort | None) -> Effort | None:
        """Return the value of `effort` to send: the *requested* one, or None for a model that rejects the parameter."""
        return None if "effort" in self.refuses else requested

    def price(self, prompt_tokens: int) -> Price:
        """Return the prices that apply to a call with *prompt_tokens* input tokens."""
        return next(p for p in self.prices if p.up_to is None or prompt_tokens <= p.up_to)

    def cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one call in dollars; the size of its whole prompt decides which prices apply."""
        return self.price(usage.prompt).of(usage)


@attrs.frozen(kw_only=True)
class ModelTable:
    """All known models by id, the ids by alias, and the values of the HTTP header `anthropic-beta` by feature name."""

    models: Mapping[str, Model]
    aliases: Mapping[str, str]
    betas: Mapping[str, str]

    def find(self, name: str) -> Model | None:
        """Return the model whose id or alias is *name*, ignoring a suffix `[1m]`; None for an unknown name."""
        bare = name.removesuffix("[1m]")
        return self.models.get(self.aliases.get(bare, bare))

    def get(self, name: str) -> Model:
        """Return the model whose id or alias is *name*. Raises `ConfigInvalid`, which suggests names, if unknown."""
        model = self.find(name)
        if model is None:
            near = closest_match(name, [*self.models, *self.aliases])
            hint = f"did you mean {', '.join(near)}?" if near else f"use one of {', '.join(sorted(self.aliases))}"
            raise ConfigInvalid("model", f"{name!r} is not a known model; {hint}")
        return model


def load_models(*overlays: Path) -> ModelTable:
    """Read the built-in table of models, override it by the TOML files *overlays* field by field, and return it.

    Raises `ConfigInvalid` for an unreadable file, an unknown table or field, and an invalid value.
    """
    table = _read(Path(__file__).with_name("models.toml"))
    for path in overlays:
        table = _lay_over(table, _read(path))
        if unknown := sorted(table.keys() - _TABLES):
            raise ConfigInvalid(str(path), f"unknown table [{unknown[0]}]; expected one of {', '.join(_TABLES)}")
    source = str(overlays[-1]) if overlays else "models.toml"
    rows = {name: {**table["defaults"], **row} for name, row in table["models"].items()}
    return ModelTable(
        models={name: _model(name, row, source) for name, row in rows.items()},
        aliases=table["aliases"],
        betas=table["betas"],
    )


@functools.cache
def known_models() -> ModelTable:
    """Return the built-in table of models, overridden by file `$COTERIE_MODELS` or the user's `models.toml`; cached."""
    named = os.environ.get(MODELS_FILE_VARIABLE)
    path = Path(named) if named else home_directory() / "models.toml"
    return load_models(path) if named or path.exists() else load_models()


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigInvalid(str(path), f"not a readable TOML file: {exc}; correct this table of models") from exc


def _lay_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        nested = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _lay_over(below[key], value) if nested else value
    return merged


def _model(id: str, row: Mapping[str, Any], source: str) -> Model:  # noqa: A002 - named as in the API
    fields = {field.name for field in attrs.fields(Model)} - {"id"}
    if unknown := sorted(row.keys() - fields):
        near = closest_match(unknown[0], fields, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(sorted(fields))}"
        raise ConfigInvalid(source, f"[models.{id}] has an unknown field {unknown[0]!r}{hint}")
    try:
        prices = tuple(Price(**price) for price in row["prices"])
        model = Model(id=id, **{**row, "prices": prices})
    except (TypeError, KeyError, ArithmeticError) as exc:
        raise ConfigInvalid(source, f"[models.{id}] is incomplete or has a wrong type: {exc}; correct it") from exc
    if not prices or prices[-1].up_to is not None:
        raise ConfigInvalid(source, f"[models.{id}] prices must end with a tier without up_to (for any size); add one")
    return model


def has_model_key() -> bool:
    """Return True if the environment has credentials of the API: `ANTHROPIC_API_KEY` or `ANTHROPIC_AUTH_TOKEN`."""
    return any(os.environ.get(name) for name in MODEL_KEY_VARIABLES)
