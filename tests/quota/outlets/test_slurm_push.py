"""Pushes to Slurm that are cut anywhere, and repeated: never open without a limit, always completed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect.slurm_accounts import SlurmAccounts
from plimsoll.errors import Unavailable
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.model import Cause, Step, compare, in_order
from plimsoll.quota.outlets.slurm import Target
from plimsoll.quota.outlets.slurm_names import TIER_QOS, guaranteed_account, is_flex, team_of
from plimsoll.quota.outlets.slurm_outlet import SlurmOutlet
from tests.support.slurm_model import SlurmModel

CALLS_MAX = 10_000
TEAMS = ("vision", "Speech 2", "audio")


def promises_of(guaranteed: dict[str, int], *, has_second_sku: bool) -> list[PoolPromise]:
    first = PoolPromise(PoolKey("tiger", "H100"), 8, 256, 248, guaranteed)
    second = PoolPromise(PoolKey("tiger", "H200"), 8, 256, 248, dict.fromkeys(guaranteed, 8))
    return [first, second] if has_second_sku else [first]


class Book:
    """What a push remembers, as `plimsoll.quota.outlets.push` does: what it has set, and what it had begun to set."""

    def __init__(self) -> None:
        self.slurm = SlurmModel()
        self.last: dict[str, str] = {}
        self.tried: dict[str, str | None] = {}

    def push(self, promises: Sequence[PoolPromise], *, calls_max: int = CALLS_MAX) -> list[Step]:
        """Push until slurmdbd is gone after so many calls."""
        outlet = SlurmOutlet(cast(SlurmAccounts, self.slurm), Target("tiger"))
        wanted, found = outlet.wanted(promises), outlet.read()
        steps = in_order(compare(wanted, found, self.last, self.tried), outlet.limit)
        differing = {step.name for step in steps}
        self.last |= {name: value for name, value in wanted.items() if name not in differing}
        for step in steps:
            if step.name in self.tried and step.found == self.tried[step.name]:
                self.remember(step.name, step.found)
            self.tried[step.name] = step.wanted
        self.slurm.calls_left = calls_max
        try:
            for step in steps:
                outlet.write(step)
                self.remember(step.name, step.wanted)
                self.check_never_open_without_a_limit()
            self.tried = {}
        except Unavailable:
            self.check_never_open_without_a_limit()
        self.slurm.calls_left = CALLS_MAX
        return steps

    def remember(self, name: str, value: str | None) -> None:
        self.last.pop(name, None)
        if value is not None:
            self.last[name] = value

    def check_never_open_without_a_limit(self) -> None:
        for row in self.slurm.accounts.values():
            is_closed = row.grp_jobs == 0 and row.grp_submit == 0
            if team_of(row.account) is None or is_closed:
                continue
            if is_flex(row.account):
                assert row.qos == ("plimsoll_flex",)
            else:
                assert "gres/gpu" in row.grp_tres
                assert row.qos == TIER_QOS


PROMISES = st.builds(
    promises_of,
    st.dictionaries(st.sampled_from(TEAMS), st.integers(0, 8).map(lambda nodes: nodes * 8)),
    has_second_sku=st.booleans(),
)


@given(st.lists(st.tuples(PROMISES, st.integers(0, 12)), min_size=1, max_size=4), PROMISES)
def test_whatever_was_cut_before_the_next_push_completes_and_a_second_has_nothing_to_do(
    cuts: list[tuple[list[PoolPromise], int]], final: list[PoolPromise]
) -> None:
    book = Book()
    for promises, calls_max in cuts:
        book.push(promises, calls_max=calls_max)
    book.push(final)
    assert book.push(final) == []
    types = {"H100": "gres/gpu:h100", "H200": "gres/gpu:h200"} if len(final) > 1 else {}
    for team in TEAMS:
        account = book.slurm.accounts.get(guaranteed_account(team))
        if team in final[0].guaranteed:
            assert account is not None
            assert account.grp_tres["gres/gpu"] == str(sum(promise.guaranteed[team] for promise in final))
            for promise in final if types else []:
                assert account.grp_tres[types[promise.pool.sku]] == str(promise.guaranteed[team])
        else:
            assert account is None or (account.grp_jobs, account.grp_submit) == (0, 0)


@given(PROMISES)
def test_a_second_book_finds_nothing_to_do(promises: list[PoolPromise]) -> None:
    book = Book()
    book.push(promises)
    book.last, book.tried = {}, {}
    assert book.push(promises) == []


def test_a_hand_that_moves_anything_of_ours_is_seen() -> None:
    promises = promises_of({"vision": 64}, has_second_sku=False)
    by_hand = {
        "GrpTRES=gres/gpu=8": "team/tiger/plimsoll_vision GrpTRES gres/gpu",
        "GrpTRES=gres/gpu=-1": "team/tiger/plimsoll_vision GrpTRES gres/gpu",
        "GrpJobs=1": "team/tiger/plimsoll_vision access",
        "GrpSubmitJobs=0": "team/tiger/plimsoll_vision access",
        "MaxTRES=gres/gpu=1": "team/tiger/plimsoll_vision access",
        "Parent=root": "team/tiger/plimsoll_vision access",
        "QOS=normal": "team/tiger/plimsoll_vision access",
    }
    for word, want in by_hand.items():
        book = Book()
        book.push(promises)
        book.slurm.change("modify", "account", "where", "Name=plimsoll_vision", "Cluster=tiger", "set", word)
        (step,) = book.push(promises)
        assert (step.name, step.cause) == (want, Cause.DRIFT), word
        assert book.push(promises) == [], word


def test_a_qos_that_is_not_needed_any_more_stays_for_others_and_is_forgotten() -> None:
    book = Book()
    book.push(promises_of({"vision": 64}, has_second_sku=True))
    one = promises_of({"vision": 64}, has_second_sku=False)
    steps = book.push(one)
    assert [step.name for step in steps if step.wanted is None and step.name.startswith("qos/")] == [
        "qos/only plimsoll_only_h200",
        "qos/only plimsoll_only_h100",
    ]
    assert book.slurm.qos_by_name["plimsoll_only_h200"].min_tres == {"gres/gpu:h200": "1"}
    assert book.push(one) == []
