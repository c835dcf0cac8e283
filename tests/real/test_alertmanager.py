"""Silences of a campaign on a real Alertmanager, and alerts that are silent or loud because of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plimsoll.campaigns.model import Batch, Mode
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.service import Silenced, cancel_silences, sync_silences
from plimsoll.campaigns.publish.silences import make_silencing, read_tag
from plimsoll.connect.alertmanager import GONE, Alertmanager, Matcher, Silence
from plimsoll.errors import Refused, Unavailable
from tests.campaigns.publish.plans import publish, unit
from tests.support.alertmanager import PrivateAlertmanager

pytestmark = pytest.mark.xdist_group("alertmanager")

NODES = 600
HOUR = timedelta(hours=1)


@pytest.fixture
def server(private_alertmanager: PrivateAlertmanager) -> Iterator[PrivateAlertmanager]:
    """The server, without silences."""
    private_alertmanager.clear()
    yield private_alertmanager
    private_alertmanager.clear()


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def out(name: str, start: datetime, *, hours: int = 4) -> Batch:
    return Batch(name, Mode.WHOLE, 1, NODES, start, start + hours * HOUR)


def planned(*batches: Batch, number: int = 1, name: str = "nic-firmware") -> Published:
    units = [unit(each, nodes=NODES) for each in ("tiger", "lion", "bear")]
    return publish(batches, units=units, number=number, name=name, at=datetime.now(UTC))


def by_batch(server: PrivateAlertmanager) -> dict[str, list[Silence]]:
    found: dict[str, list[Silence]] = {}
    for silence in server.living():
        tag = read_tag(silence)
        assert tag is not None
        found.setdefault(tag.batch, []).append(silence)
    return found


def test_alerts_of_a_batch_are_silent_while_it_is_out(server: PrivateAlertmanager, now: datetime) -> None:
    server.fire(
        [
            {"alertname": "NodeDown", "node": f"{cluster}-1-{number:03}"}
            for cluster in ("tiger", "lion")
            for number in (0, 599)
        ]
        + [{"alertname": "NodeDown", "node": name} for name in ("tiger-1-0000", "tiger-1-60", "xtiger-1-000")]
    )
    sync_silences(planned(out("tiger", now - HOUR), out("lion", now + 24 * HOUR)), server.client())
    loud = sorted(labels["node"] for labels in server.loud())
    assert loud == ["lion-1-000", "lion-1-599", "tiger-1-0000", "tiger-1-60", "xtiger-1-000"]
    cancel_silences(planned(out("tiger", now - HOUR)), server.client())
    assert len(server.loud()) == 7


def test_a_label_with_a_port(server: PrivateAlertmanager, now: datetime) -> None:
    server.fire([{"alertname": "Port", "instance": each} for each in ("tiger-1-000:9400", "tiger-1-000x:9400")])
    published = planned(out("tiger", now))
    silencing = make_silencing("instance", more=[("alertname", "Port")])
    assert sync_silences(published, server.client(), silencing=silencing).created == 3
    loud = [labels["instance"] for labels in server.loud() if labels["alertname"] == "Port"]
    assert loud == ["tiger-1-000x:9400"]
    assert sync_silences(published, server.client(), silencing=silencing) == Silenced(3, 0, 0, 0)


def test_replanning_replaces_and_never_piles_up(server: PrivateAlertmanager, now: datetime) -> None:
    client = server.client()
    start = now + 24 * HOUR
    first = planned(out("tiger", start), out("lion", start), out("bear", now - HOUR))
    assert sync_silences(first, client) == Silenced(kept=0, created=9, replaced=0, expired=0)
    assert sync_silences(first, client) == Silenced(kept=9, created=0, replaced=0, expired=0)
    ids = {name: {silence.id for silence in listed} for name, listed in by_batch(server).items()}

    # tiger moves, lion is gone, bear is out and only its plan has another number.
    second = planned(out("tiger", start + 24 * HOUR), out("bear", now - HOUR), number=2)
    assert sync_silences(second, client) == Silenced(kept=0, created=0, replaced=6, expired=3)
    found = by_batch(server)
    assert sorted((name, len(listed)) for name, listed in found.items()) == [("bear#1", 3), ("tiger#1", 3)]
    assert {silence.starts_at for silence in found["tiger#1"]} == {start + 24 * HOUR}
    assert {silence.id for silence in found["bear#1"]} == ids["bear#1"], "what is active is changed in place"
    assert all("plan 2," in silence.comment for listed in found.values() for silence in listed)

    # bear's work takes longer, then is called off while it is out.
    third = planned(out("tiger", start + 24 * HOUR), out("bear", now - HOUR, hours=6), number=2)
    assert sync_silences(third, client) == Silenced(kept=3, created=0, replaced=3, expired=0)
    fourth = planned(out("tiger", start + 24 * HOUR), out("bear", start), number=3)
    assert sync_silences(fourth, client) == Silenced(kept=0, created=0, replaced=6, expired=0)
    found = by_batch(server)
    assert {silence.state for silence in found["bear#1"]} == {"pending"}
    assert not {silence.id for silence in found["bear#1"]} & ids["bear#1"], "the server made new ones"
    assert len(server.living()) == 6


def test_other_campaigns_and_people_are_left_alone(server: PrivateAlertmanager, now: datetime) -> None:
    client = server.client()
    mine = client.save(
        matchers=[Matcher("node", "tiger-1-000")], starts_at=now, ends_at=now + HOUR, created_by="ada", comment="mine"
    )
    sync_silences(planned(out("lion", now), name="other"), client)
    published = planned(out("tiger", now))
    sync_silences(published, client)
    assert cancel_silences(published, client) == Silenced(kept=0, created=0, replaced=0, expired=3)
    left = server.living()
    assert len(left) == 4
    assert mine in {silence.id for silence in left}


class Dying(Alertmanager):
    """The process dies, or the answer is lost, at the n-th change; the server has carried it out or not."""

    def __init__(self, url: str, *, at: int, is_done: bool, error: type[BaseException]) -> None:
        super().__init__(url)
        self.left, self.is_done, self.error = at, is_done, error

    def save(self, **about: Any) -> str:
        self.left -= 1
        if self.left == 0 and not self.is_done:
            raise self._error()
        name = super().save(**about)
        if self.left == 0:
            raise self._error()
        return name

    def _error(self) -> BaseException:
        return self.error("alertmanager_unavailable", "lost") if self.error is Unavailable else self.error()


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt, Unavailable])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_crash_in_the_middle_leaves_no_doubles(
    server: PrivateAlertmanager, now: datetime, at: int, is_done: bool, error: type[BaseException]
) -> None:
    first = planned(out("tiger", now - HOUR), out("lion", now + 24 * HOUR))
    second = planned(out("tiger", now - HOUR), out("lion", now + 48 * HOUR), number=2)
    for published in (first, second):
        dying = Dying(server.url, at=at, is_done=is_done, error=error)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                sync_silences(published, dying)
            sync_silences(published, server.client())
        else:
            sync_silences(published, dying)  # looks again by itself
        assert {name: len(listed) for name, listed in by_batch(server).items()} == {"tiger#1": 3, "lion#1": 3}
        assert all(f"plan {published.number}," in silence.comment for silence in server.living())


def test_what_the_server_refuses_is_said(server: PrivateAlertmanager, now: datetime) -> None:
    client = server.client()
    with pytest.raises(Refused) as caught:
        client.save(
            matchers=[Matcher("node", "(", is_regex=True)],
            starts_at=now,
            ends_at=now + HOUR,
            created_by="plimsoll",
            comment="c",
        )
    assert caught.value.code == "alertmanager_refused"
    assert "missing closing" in caught.value.message
    with pytest.raises(Refused) as caught:
        client.save(
            matchers=[Matcher("node", "n1")],
            starts_at=now,
            ends_at=now + HOUR,
            created_by="plimsoll",
            comment="c",
            silence_id="5e4b0a1c-0000-4000-8000-000000000000",
        )
    assert caught.value.code == GONE
    client.expire("5e4b0a1c-0000-4000-8000-000000000000")
