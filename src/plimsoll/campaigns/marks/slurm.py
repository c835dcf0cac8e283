"""Marks of a campaign in Slurm: a MAINT reservation for the time of a batch, and a drain of its nodes when it is due.

The reservation keeps backfill from planning into the batch ahead of time, the drain keeps everything off from the
moment that the batch is due, also when the work takes longer than was reserved. Must never end a drain that is not this
batch's, and never drain a node that is DOWN: our reason would take the place of the one by which Slurm knows whether it
may come back by itself, and DOWN nodes get no work anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from plimsoll.campaigns.marks.model import (
    Acted,
    AtDeadline,
    Cleared,
    Drained,
    Extent,
    Looked,
    drain_reason,
    is_of_batch,
)
from plimsoll.connect.slurm_nodes import SlurmNode
from plimsoll.connect.slurm_reservations import SlurmReservations, reservation_name
from plimsoll.times import Clock

WITHOUT_REASON = "drained without a reason"


class SlurmMarks:
    """The Slurm of one cluster, for one campaign. `user` may run jobs in a reservation: checks after the work."""

    def __init__(
        self,
        slurm: SlurmReservations,
        *,
        campaign: str,
        clock: Clock,
        at_deadline: AtDeadline = AtDeadline.REQUEUE,
        user: str = "root",
    ) -> None:
        self._slurm, self._campaign, self._clock = slurm, campaign, clock
        self._at_deadline, self._user = at_deadline, user

    @property
    def where(self) -> str:
        return self._slurm.where

    def book(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        known = self._known(nodes)
        missing = _without(nodes, known)
        if not known:
            return Acted(missing=missing)
        self._slurm.reserve(
            self._name(batch), list(known), starts=starts, ends=ends, now=self._clock(), user=self._user
        )
        return Acted(tuple(known), missing)

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        assert reason, "a mark says why"
        booked = self.book(batch, nodes, starts=starts, ends=ends)
        known = self._known(booked.done)
        to_drain = [name for name, node in known.items() if "DOWN" not in node.states]
        drained = self._slurm.drain(to_drain, reason=drain_reason(self._campaign, batch))
        left = {
            node.name: node.reason or WITHOUT_REASON
            for node in drained
            if not is_of_batch(node.reason, self._campaign, batch)
        }
        return Acted(tuple(name for name in known if name not in left), booked.missing, left)

    def unmark(self, batch: str, nodes: Collection[str]) -> Acted:
        # The reservation goes first: until the drain has ended, too, nothing starts on half a return.
        self._slurm.release(self._name(batch))
        known = self._known(nodes)
        by_reason: dict[str, list[str]] = {}
        for name, node in known.items():
            if node.is_drained and is_of_batch(node.reason, self._campaign, batch):
                by_reason.setdefault(node.reason, []).append(name)
        for reason, names in by_reason.items():
            back = self._slurm.bring_back(names, drained_for=reason)
            self._slurm.resume([name for name in names if name not in back], drained_for=reason)
        left = {
            name: node.reason or WITHOUT_REASON
            for name, node in self._known(nodes).items()
            if node.is_drained or "DOWN" in node.states
        }
        return Acted(tuple(name for name in known if name not in left), _without(nodes, known), left)

    def look(self, batch: str, nodes: Collection[str]) -> Looked:
        known = self._known(nodes)
        kept: frozenset[str] = frozenset().union(
            *(each.nodes for each in self._slurm.reserved(self._name(batch)) if each.is_for_work)
        )
        closed = {name for name, node in known.items() if node.is_drained or "DOWN" in node.states}
        ours = {name for name, node in known.items() if is_of_batch(node.reason, self._campaign, batch)}
        marked = closed & kept
        missing = _without(nodes, known)
        if not kept and not ours:
            return Looked(Extent.NOT_MARKED, tuple(name for name in known if name not in closed), missing)
        extent = Extent.MARKED if marked == set(known) and kept <= set(nodes) else Extent.PARTLY
        return Looked(extent, tuple(name for name in known if name not in marked), missing)

    def drained(self, nodes: Collection[str]) -> Drained:
        """A node whose jobs are suspended is IDLE to Slurm: so the jobs are asked as well as the nodes."""
        known = self._known(nodes)
        busy: dict[str, list[str]] = {name: [] for name, node in known.items() if node.has_work}
        for job in self._slurm.jobs(known):
            for name in job.nodes:
                if name in known:
                    busy.setdefault(name, []).append(f"job {job.number}")
        return Drained(
            tuple(name for name in known if name not in busy),
            {name: tuple(busy[name]) for name in known if name in busy},
        )

    def clear(self, nodes: Collection[str]) -> Cleared:
        """Requeue or cancel the jobs that have one of these nodes, all of each job: a gang without a node is none."""
        jobs = [job for job in self._slurm.jobs(nodes) if not job.is_ending]
        if self._at_deadline is AtDeadline.WAIT:
            return Cleared(waiting={f"job {job.number}": "it may end by itself" for job in jobs})
        numbers = [job.number for job in jobs]
        is_requeued = self._at_deadline is AtDeadline.REQUEUE
        said = self._slurm.requeue(numbers) if is_requeued else self._slurm.cancel(numbers)
        still = {job.number for job in self._slurm.jobs(nodes) if not job.is_ending}
        waiting = {f"job {number}": said or "Slurm still runs it" for number in numbers if number in still}
        return Cleared(tuple(f"job {number}" for number in numbers if number not in still), waiting)

    def _name(self, batch: str) -> str:
        return reservation_name(self._campaign, batch)

    def _known(self, nodes: Collection[str]) -> dict[str, SlurmNode]:
        """The nodes that Slurm knows, in the order in which they were named."""
        there = {node.name: node for node in self._slurm.nodes()}
        return {name: there[name] for name in dict.fromkeys(nodes) if name in there}


def _without(nodes: Collection[str], known: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(nodes) if name not in known)
