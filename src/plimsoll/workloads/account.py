"""What became of a part: how long it ran, stood still, and how much of its work was for nothing. Pure.

A gang that is interrupted starts again from its last checkpoint: what it did since then is lost, and it takes its
restart before it goes on. Checkpoints are taken every `checkpoint_minutes` of running; without any, all is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.workloads.model import Account, Because, Interruption, PartSpec, Spec

INTERRUPTIONS_KEPT = 50
"""Of each workload so many are remembered one by one, the newest; all are counted."""
MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US


def change_account(before: Account, spec: Spec, part: PartSpec, gpus: int, because: Because | None, at: int) -> Account:
    """The account after a part holds `gpus` from a moment on. `because` is None where it ended by itself."""
    run = at - before.since if before.since else 0
    fields: dict[str, object] = {
        "gpus": gpus,
        "since": at if gpus else 0,
        "run_us": before.run_us + run,
        "gpu_us": before.gpu_us + run * before.gpus,
    }
    if gpus and not before.since:
        if not before.first_started:
            fields["first_started"] = at
        elif before.stopped:
            fields["down_us"] = before.down_us + at - before.stopped
        fields["stopped"], fields["checkpoint_base"] = 0, at
    elif not gpus and before.since:
        fields["stopped"] = at if because is not None else 0
    if part.is_gang and before.since and because is not None and because.interrupts:
        stretch = at - before.checkpoint_base
        every = round(spec.checkpoint_minutes * MINUTE_US)
        fields["lost_us"] = before.lost_us + (stretch % every if every else stretch)
        fields["restart_us"] = before.restart_us + round(spec.restart_minutes * MINUTE_US)
        fields["interruptions"] = before.interruptions + 1
        fields["by_cause"] = {**before.by_cause, because.value: before.by_cause.get(because.value, 0) + 1}
        fields["checkpoint_base"] = at
    return msgspec.structs.replace(before, **fields)


def note_interruption(past: tuple[Interruption, ...], told: Interruption) -> tuple[Interruption, ...]:
    """Remember one more."""
    return (*past[1 - INTERRUPTIONS_KEPT :], told)


def close_down(past: tuple[Interruption, ...], part: str, down_us: int) -> tuple[Interruption, ...]:
    """A part runs again: its last interruption lasted so long."""
    for place in range(len(past) - 1, -1, -1):
        if past[place].part == part:
            ended = msgspec.structs.replace(past[place], down_us=down_us)
            return (*past[:place], ended, *past[place + 1 :])
    return past


class Uptime(msgspec.Struct, frozen=True):
    """What gangs made of their time, in hours. `uptime` = running / since the first start; `goodput` = useful / the
    same, where what was lost since a checkpoint and what restarts took is not useful. None where nothing ever ran.
    """

    hours: float
    running_hours: float
    down_hours: float
    lost_hours: float
    restart_hours: float
    gpu_hours: float
    lost_gpu_hours: float
    interruptions: int
    by_cause: Mapping[str, int]

    @property
    def uptime(self) -> float | None:
        return self.running_hours / self.hours if self.hours else None

    @property
    def goodput(self) -> float | None:
        useful = self.running_hours - self.lost_hours - self.restart_hours
        return max(0.0, useful) / self.hours if self.hours else None

    @property
    def interruptions_per_day(self) -> float | None:
        return self.interruptions / (self.hours / 24) if self.hours >= 1 else None


def uptime_of(accounts: Iterable[tuple[PartSpec, Account]], *, now: int) -> Uptime:
    """The sum over gangs, each weighed by its GPUs' time where it counts GPUs, else by its hours."""
    running = down = lost = restart = gpu = lost_gpu = 0
    count, causes = 0, dict[str, int]()
    for part, account in accounts:
        run = account.run_us + (now - account.since if account.since else 0)
        gpu += account.gpu_us + (now - account.since) * account.gpus if account.since else account.gpu_us
        if not part.is_gang:
            continue
        running += run
        down += account.down_us + (now - account.stopped if account.stopped else 0)
        restarts = min(account.restart_us, max(0, run - account.lost_us))
        lost, restart = lost + account.lost_us, restart + restarts
        lost_gpu += (account.lost_us + restarts) * part.gpus
        count += account.interruptions
        for cause, times in account.by_cause.items():
            causes[cause] = causes.get(cause, 0) + times
    return Uptime(
        (running + down) / HOUR_US,
        running / HOUR_US,
        down / HOUR_US,
        lost / HOUR_US,
        restart / HOUR_US,
        gpu / HOUR_US,
        lost_gpu / HOUR_US,
        count,
        causes,
    )
