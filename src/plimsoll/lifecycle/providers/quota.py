"""Who says how much quota there is: a CSV file, or Azure."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_machines import Usage
from plimsoll.connect.provider import ProviderTrouble
from plimsoll.errors import Refused
from plimsoll.lifecycle.model import QuotaKey
from plimsoll.lifecycle.outside import UsageRead
from plimsoll.lifecycle.recipe import QuotaSource, Recipe

COLUMNS = ("subscription", "region", "family", "limit", "used")
FILE_BYTES_MAX = 4 << 20
CORES_MAX = 10**9
DIGITS_MAX = 12
AZURE_EVERY_SECONDS = 60.0
"""How often Azure is asked for the same region."""
AGAIN_SECONDS = 10.0
"""How soon Azure is asked again where it could not say; a pass does not wait for that each time."""


class Quotas:
    """Quota by the recipe's source. Relative files are looked for in `folder`."""

    def __init__(
        self,
        folder: Path,
        azure: Callable[[str], Azure],
        *,
        clock: Callable[[], float] = time.monotonic,
        every_seconds: float = AZURE_EVERY_SECONDS,
    ) -> None:
        self._folder, self._azure, self._clock, self._every_seconds = folder, azure, clock, every_seconds
        self._kept: dict[tuple[str, str], tuple[float, list[Usage] | ProviderTrouble]] = {}
        """Until when an answer, or the lack of one, is kept."""

    def usages(self, recipe: Recipe, subscription: str, region: str) -> Sequence[UsageRead]:
        if recipe.quota.source is QuotaSource.AZURE:
            return [
                UsageRead(QuotaKey(subscription, region, each.name), each.limit, each.used)
                for each in self._ask(subscription, region)
            ]
        rows = read_quota_file(self._folder / recipe.quota.file)
        return [each for each in rows if each.key == QuotaKey(subscription, region, each.key.family)]

    def _ask(self, subscription: str, region: str) -> list[Usage]:
        until, kept = self._kept.get((subscription, region), (0.0, None))
        if kept is None or self._clock() >= until:
            try:
                kept, seconds = self._azure(subscription).usages(region), self._every_seconds
            except ProviderTrouble as trouble:
                kept, seconds = trouble, trouble.retry_seconds or min(AGAIN_SECONDS, self._every_seconds)
            self._kept[subscription, region] = self._clock() + seconds, kept
        if isinstance(kept, ProviderTrouble):
            raise kept.with_traceback(None)
        return kept


def read_quota_file(path: Path) -> list[UsageRead]:
    """The rows of a quota file; a bad one is named, and nothing of it is used."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise _bad(path, 0, f"over {FILE_BYTES_MAX:,} bytes")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if tuple(header) != COLUMNS:
                raise _bad(path, 1, f"the header is {','.join(header)[:80] or 'empty'}, expected {','.join(COLUMNS)}")
            rows = [(reader.line_num, _row(path, reader.line_num, cells)) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused(
            "quota_unreadable",
            f"{path.name} can't be read: {why}",
            next_step=f"write it ({','.join(COLUMNS)}), or say in the recipe where quota is read: quota: {{source: …}}",
        ) from None
    seen: dict[QuotaKey, int] = {}
    for number, row in rows:
        if row.key in seen:
            raise _bad(path, number, f"{row.key} stands there twice; first in row {seen[row.key]}")
        seen[row.key] = number
    return [row for _, row in rows]


def _row(path: Path, number: int, cells: Sequence[str]) -> UsageRead:
    if len(cells) != len(COLUMNS):
        raise _bad(path, number, f"{len(cells)} cells, expected {len(COLUMNS)}")
    subscription, region, family, limit, used = (cell.strip() for cell in cells)
    for name, text in (("subscription", subscription), ("region", region), ("family", family)):
        if not text or not text.isprintable():
            raise _bad(path, number, f"{name} is {f'{text[:40]!r}' if text else 'empty'}, expected a name")
    numbers = []
    for name, text in (("limit", limit), ("used", used)):
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) <= CORES_MAX):
            raise _bad(path, number, f"{name} is {text[:40]!r}, expected a whole number of cores")
        numbers.append(int(text))
    return UsageRead(QuotaKey(subscription, region, family), *numbers)


def _bad(path: Path, row: int, what: str) -> Refused:
    where = f"{path.name} row {row}" if row else path.name
    return Refused("bad_quota_file", f"{where}: {what}", next_step="correct it; the next pass reads it again")
