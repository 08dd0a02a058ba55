"""Prices of GPUs as the user gives them; none is known here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvroom.devices.catalogue import find_device
from kvroom.errors import UsageError, short
from kvroom.files import read_limited, reason

_PRICE = re.compile(
    r"([$\u20ac\u00a3\u00a5])?\s*(\d+(?:\.\d+)?)\s*([$\u20ac\u00a3\u00a5]|[A-Za-z]{3})?\s*(?:(?:/|\s+per\s+)\s*([A-Za-z]+))?"
)
_SIGNS = {"$": "USD", "\u20ac": "EUR", "\u00a3": "GBP", "\u00a5": "JPY"}
_HOURS = {"h": 1.0, "hr": 1.0, "hour": 1.0, "day": 24.0, "month": 730.0, "year": 8760.0}
_LARGEST = 100_000


@dataclass(frozen=True, slots=True)
class Prices:
    """What one GPU costs an hour, by the catalogue's id."""

    hourly: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""
    """Empty where none was named: the prices are in whatever the user counts in."""

    def of(self, device_id: str, gpus: int) -> float | None:
        """The hourly price of ``gpus`` such cards, None where it was not given."""
        each = self.hourly.get(device_id)
        return None if each is None else each * gpus


def read_prices(items: Iterable[str]) -> Prices:
    """Prices of ``NAME=PRICE`` words and of YAML or JSON files of such pairs.

    A price is a number, with a currency and a time if wanted: ``2.5``, ``$2.5/h``, ``1800 EUR/month``. Raises
    UsageError for a unit that is not known, two currencies, a card that is not in the catalogue.
    """
    pairs: list[tuple[str, str]] = []
    for item in items:
        name, equals, price = item.partition("=")
        pairs += [(name.strip(), price.strip())] if equals else _from_file(item)
    hourly: dict[str, float] = {}
    currencies: set[str] = set()
    for name, text in pairs:
        device = find_device(name)
        amount, currency = _price(name, text)
        if device.id in hourly and hourly[device.id] != amount:
            raise UsageError(f"Two prices for {device.name}: {hourly[device.id]:g} and {amount:g} an hour.")
        hourly[device.id] = amount
        currencies.add(currency)
    if len(currencies) > 1:
        named = ", ".join(sorted(currency or "none" for currency in currencies))
        raise UsageError(f"The prices are in several currencies ({named}).", "Give all of them in one.")
    return Prices(hourly, next(iter(currencies), ""))


def _price(name: str, text: str) -> tuple[float, str]:
    """Money an hour and its currency."""
    match = _PRICE.fullmatch(text.strip()) if len(text) < 60 else None
    cure = "Write it as in H100=2.5, 'H100=$2.5/h' or 'H100=1800 EUR/month'; hours where no time is given."
    if match is None:
        raise UsageError(f"--price {short(name, 40)}={short(text, 40)}: not a price.", cure)
    sign, amount, word, time = match.groups()
    currency = _SIGNS.get(sign or word or "", (word or "").upper())
    hours = _HOURS.get((time or "h").lower().removesuffix("s") if time != "s" else "s")
    if hours is None:
        raise UsageError(f"--price {short(name, 40)}={short(text, 40)}: '{time}' is no time that is known.", cure)
    if (sign and word) or not 0 < float(amount) < 1e9:
        raise UsageError(f"--price {short(name, 40)}={short(text, 40)}: not a usable price.", cure)
    return float(amount) / hours, currency


def _from_file(name: str) -> list[tuple[str, str]]:
    """The pairs of a YAML or JSON file: a mapping of card to price."""
    import yaml

    cure = "Write NAME=PRICE, or name a YAML file with lines like 'H100: 2.5'."
    try:
        text = read_limited(Path(name).expanduser(), _LARGEST).decode("utf-8-sig")
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"--price {short(name)}: neither a price nor a file ({reason(error)}).", cure) from None
    try:
        data: Any = None
        if any(isinstance(event, yaml.events.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise UsageError(f"{short(name)} uses YAML aliases, which a list of prices does not need.", cure)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{short(name)} is no YAML: {short(str(error), 200)}", cure) from None
    if not isinstance(data, dict) or not data:
        raise UsageError(f"{short(name)} holds no prices.", cure)
    pairs = []
    for card, price in data.items():
        if isinstance(price, bool) or not isinstance(price, int | float | str) or not isinstance(card, str | int):
            raise UsageError(f"{short(name)}: the price of {short(str(card), 60)} is no number.", cure)
        pairs.append((str(card), str(price)))
    return pairs
