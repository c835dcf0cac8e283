"""The phase follows from what is true, and from nothing else."""

from __future__ import annotations

import pytest

from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.model import Condition, ConditionType, Life, Move, Severity, Truth
from plimsoll.lifecycle.phases import has_reached, phase_of
from tests.support.slipway import START, Slip, life, work

BUILT = (ConditionType.CHECKED_IN, ConditionType.INFRASTRUCTURE_APPLIED, ConditionType.SCALE_SETS_READY)


def told(*true: ConditionType, false: ConditionType | None = None) -> dict[str, Condition]:
    def one(kind: ConditionType, status: Truth) -> Condition:
        return Condition(kind, status, "Done", "it is", Severity.INFO, Move.NOBODY, 1, START, START)

    return {kind: one(kind, Truth.FALSE if kind is false else Truth.TRUE) for kind in true}


CASES = {
    "just planned": (life(), Phase.PLANNED),
    "checked in before there is quota": (life(checked_in=life().planned), Phase.PLANNED),
    "waived before there is quota": (life(works=[work("checkin", attempt=0)]), Phase.PLANNED),
    "quota is promised": (life(claimed_at=START), Phase.PROVISIONING),
    "steps run": (life(claimed_at=START, works=[work("checkin")]), Phase.PROVISIONING),
    "built": (life(claimed_at=START, conditions=told(*BUILT)), Phase.PROVISIONED),
    "built but for the check-in": (life(claimed_at=START, conditions=told(*BUILT, false=BUILT[0])), Phase.PROVISIONING),
    "built but for the infrastructure": (
        life(claimed_at=START, conditions=told(*BUILT, false=BUILT[1])),
        Phase.PROVISIONING,
    ),
    "built but for the machines": (life(claimed_at=START, conditions=told(*BUILT, false=BUILT[2])), Phase.PROVISIONING),
    "everything holds, and nobody has let it in": (
        life(claimed_at=START, conditions=told(*ConditionType)),
        Phase.PROVISIONED,
    ),
    "let in": (life(claimed_at=START, available_at=START, conditions=told(*BUILT)), Phase.PRODUCTION),
    "in production, and nothing holds any more": (life(claimed_at=START, available_at=START), Phase.PRODUCTION),
    "in production, and leaving": (
        life(claimed_at=START, available_at=START, leaving=life().planned),
        Phase.PRODUCTION,
    ),
    "gone": (life(claimed_at=START, gone_at=START), Phase.RETIRED),
}


@pytest.mark.parametrize("case", CASES)
def test_phase(case: str) -> None:
    some, want = CASES[case]
    assert isinstance(some, Life)
    assert phase_of(some) is want


def test_what_a_phase_has_reached() -> None:
    planned, provisioning, provisioned, production, retired = (
        Phase.PLANNED,
        Phase.PROVISIONING,
        Phase.PROVISIONED,
        Phase.PRODUCTION,
        Phase.RETIRED,
    )
    want = {
        planned: {planned},
        provisioning: {planned, provisioning},
        provisioned: {planned, provisioning, provisioned},
        production: {planned, provisioning, provisioned, production},
        retired: {retired},
    }
    assert {phase: {each for each in Phase if has_reached(phase, each)} for phase in Phase} == want


def test_the_fleet_follows_phase_by_phase() -> None:
    with Slip(limit=0) as slip:
        slip.add()
        slip.check_in()
        seen = [slip.phase()]

        def look() -> None:
            if slip.phase() is not seen[-1]:
                seen.append(slip.phase())

        slip.run()
        look()
        slip.cloud.limits = dict.fromkeys(slip.cloud.limits, 384)
        slip.run()
        look()
        for step in ("checkin", "bootstrap", "dependencies", "scale-sets", "services", "burn-in"):
            slip.finish(step)
            look()
        for _ in range(12):
            slip.run(minutes=1)
            look()
        slip.retire()
        slip.run()
        look()
        slip.finish("destroy")
        look()
        assert seen == [Phase.PLANNED, Phase.PROVISIONING, Phase.PROVISIONED, Phase.PRODUCTION, Phase.RETIRED]
