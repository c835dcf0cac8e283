"""What an application does to each team, as tables: a row for each team, and one for each of its pools."""

from __future__ import annotations

from plimsoll.commands.quota.effects import Effect, effect_tables
from plimsoll.quota.model import Haircut


def effect(team: str, cluster: str, was: int, guaranteed: int, *cut: int) -> Effect:
    haircut = Haircut(*cut)
    return Effect(team, cluster, "H100", guaranteed + haircut.gpus, was, guaranteed, haircut)


TIGER = effect("vision", "tiger", 0, 40, 16, 8, 0)
LION = effect("vision", "lion", 0, 24, 0, 0, 8)
OTHER = effect("voice", "tiger", 32, 56)


def test_one_pool_of_each_team_is_one_table() -> None:
    [table] = effect_tables([TIGER, OTHER], 25)
    assert table.columns[:6] == ("team", "cluster", "sku", "assigned", "guaranteed_was", "guaranteed")
    assert table.rows == [
        ("vision", "tiger", "H100", 64, 0, 40, 16, 8, 0),
        ("voice", "tiger", "H100", 56, 32, 56, 0, 0, 0),
    ]


def test_several_pools_of_a_team_are_added_up_first() -> None:
    whole, pools = effect_tables([TIGER, LION, OTHER], 25)
    assert whole.rows == [("vision", 2, 96, 0, 64, 16, 8, 8), ("voice", 1, 56, 32, 56, 0, 0, 0)]
    assert [row[:3] for row in pools.rows] == [
        ("vision", "tiger", "H100"),
        ("vision", "lion", "H100"),
        ("voice", "tiger", "H100"),
    ]


def test_where_nothing_happens_to_anybody_there_is_no_table() -> None:
    assert effect_tables([], 25) == []
