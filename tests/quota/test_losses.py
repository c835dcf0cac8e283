"""What is lost when GPUs die under running work, and that a correction afterwards does not tell it otherwise."""

from __future__ import annotations

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.fill import Loss
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import look
from plimsoll.quota.model import Kind
from plimsoll.quota.policy import DEFAULT_POLICY
from plimsoll.state.state import State
from tests.support.harbour import SIZE, TIGER, Harbour, Work

QUOTAS = {"a": 60, "b": 40}
WORK = (
    Work("a", 40, kind=Kind.GANG, name="train"),
    Work("a", 20, name="graders", rank=2),
    Work("b", 40, name="evals", rank=3),
)


def lost(harbour: Harbour) -> dict[tuple[str, str], int]:
    """Nodes that each part lost."""
    pools = look(harbour.state, [PoolKey(*TIGER)], DEFAULT_POLICY, harbour.now.date())
    losses: list[Loss] = [loss for pool in pools for loss in pool.losses]
    found: dict[tuple[str, str], int] = {}
    for loss in losses:
        found[loss.team, loss.work] = found.get((loss.team, loss.work), 0) + loss.gpus // SIZE
    return found


def test_a_correction_brings_nothing_back_to_life_and_kills_nothing_else() -> None:
    """30 of 100 nodes die: the last rank goes first, elastic before gangs. Team b is then cut below what it ran."""
    with Harbour(100, QUOTAS, WORK) as harbour:
        harbour.apply()
        harbour.work_only(70)
        before = lost(harbour)
        assert sum(before.values()) == 30
        assert not any(work.startswith("train") for _, work in before), "the gang goes last"
        harbour.mode()
        harbour.control()
        assert sum(harbour.guaranteed.values()) == 70
        assert lost(harbour) == before
        harbour.work_only(60)
        more = lost(harbour)
        assert sum(more.values()) == 40
        assert all(more[each] >= gpus for each, gpus in before.items()), "what died stays dead"


def test_when_all_work_again_nothing_is_remembered() -> None:
    with Harbour(100, QUOTAS, WORK) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.work_only(70)
        harbour.control()
        assert harbour.state.of(QuotaBook).loss_basis
        harbour.work_only(100)
        harbour.run(*WORK)
        assert not harbour.state.of(QuotaBook).loss_basis
        assert lost(harbour) == {}


def test_what_is_remembered_survives_a_snapshot() -> None:
    with Harbour(100, QUOTAS, WORK) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.work_only(70)
        harbour.control()
        copy = State(harbour.keeper.kinds)
        copy.load(harbour.state.dump())
        assert copy.of(QuotaBook).loss_basis == harbour.state.of(QuotaBook).loss_basis != {}
