"""Roles, tokens, sessions and links over a database: what works, until when, and what is written down of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from plimsoll.access import desk, service
from plimsoll.access.changes import RoleGranted
from plimsoll.access.decide import judge, read_mapping
from plimsoll.access.fold import Access
from plimsoll.access.model import Binding, Kind, Permission, Principal, Role
from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.ledger.model import Draft, Paper
from plimsoll.rooms import open_keeper
from plimsoll.state.state import State
from tests.support.access import Gatehouse, redeem_at
from tests.support.children import Child
from tests.support.ledgers import MONDAY, raw

DAY = timedelta(days=1)
MEMBER = Binding(Role.MEMBER, "alpha")


@pytest.fixture
def house(dsn: str) -> Iterator[Gatehouse]:
    with Gatehouse(dsn) as each:
        yield each


def test_roles_are_events_with_who_and_why(house: Gatehouse) -> None:
    service.grant(house.keeper, "Alice@Example.org", MEMBER, actor="root", reason="joined")
    assert service.grant(house.keeper, "alice@example.org", MEMBER, actor="root") == [], "she has it already"
    (event,) = house.store.events()
    assert (event.subject, event.actor, event.reason) == ("access/alice@example.org", "root", "joined")
    access = house.keeper.state().of(Access)
    assert access.bindings_of("alice@example.org") == (MEMBER,)
    assert access.changed_at == 1
    service.revoke(house.keeper, "alice@example.org", MEMBER, actor="root")
    access = house.keeper.state().of(Access)
    assert (access.grants, access.changed_at) == ({}, 2)
    with pytest.raises(NotFound) as refused:
        service.revoke(house.keeper, "alice@example.org", MEMBER, actor="root")
    assert refused.value.code == "no_such_grant"


def test_the_past_and_a_snapshot_know_the_roles_too(house: Gatehouse, dsn: str) -> None:
    house.grant("alice", Role.MEMBER, "alpha")
    house.grant("group:x", Role.VIEWER)
    secret = house.issue("alice", expires=house.now + DAY, scopes=[Permission.USE])
    house.keeper.snapshot()
    house.revoke("alice", Role.MEMBER, "alpha")
    assert house.keeper.as_of(3).of(Access).bindings_of("alice") == (MEMBER,)
    with open_keeper(dsn) as other:
        access = other.state().of(Access)
        assert (access.bindings_of("alice"), access.bindings_of("group:x")) == ((), (Binding(Role.VIEWER),))
        assert service.find_token(other.ledger.store, other.state(), secret, MONDAY) is not None


def test_the_last_admin_stays(house: Gatehouse) -> None:
    admin = Binding(Role.ADMIN)
    for who in ("alice", "bob", "service:ci"):
        house.grant(who, Role.ADMIN)
    service.revoke(house.keeper, "bob", admin, actor="root")
    with pytest.raises(Refused) as refused:
        service.revoke(house.keeper, "alice", admin, actor="root")
    assert refused.value.code == "last_admin"
    service.revoke(house.keeper, "service:ci", admin, actor="root")
    service.revoke(house.keeper, "alice", admin, actor="root", is_anyway=True)
    assert house.keeper.state().of(Access).grants == {}


def test_two_admins_who_revoke_each_other_at_once_do_not_both_go(
    house: Gatehouse, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one always comes at the worst moment: right after it was decided that somebody is left."""
    for who in ("alice", "bob"):
        house.grant(who, Role.ADMIN)
    turns = iter([True])

    def decide_and_be_overtaken(state: State, who: str, binding: Binding, *, is_anyway: bool = False) -> list[Draft]:
        drafts = original(state, who, binding, is_anyway=is_anyway)
        if next(turns, False):
            with open_keeper(dsn) as other:
                service.revoke(other, "bob", binding, actor="bob")
        return drafts

    original = desk.revoke
    monkeypatch.setattr(desk, "revoke", decide_and_be_overtaken)
    with pytest.raises(Refused) as refused:
        service.revoke(house.keeper, "alice", Binding(Role.ADMIN), actor="alice")
    assert refused.value.code == "last_admin"
    assert list(house.keeper.state().of(Access).grants) == ["alice"]


def test_a_principal_has_their_own_roles_and_those_of_their_groups(house: Gatehouse) -> None:
    house.grant("alice", Role.MEMBER, "alpha")
    house.grant("group:rpms", Role.RPM)
    house.grant("service:alice", Role.ADMIN)
    state, mapping = house.keeper.state(), read_mapping("ops=operator,rpms=rpm")
    found = service.principal_of(state, "alice", Kind.PERSON, ("ops", "rpms", "none"), mapping)
    assert found == Principal("alice", Kind.PERSON, (MEMBER, Binding(Role.RPM), Binding(Role.OPERATOR)))
    assert service.principal_of(state, "alice", Kind.PERSON).bindings == (MEMBER,)
    assert service.principal_of(state, "alice", Kind.SERVICE).bindings == (Binding(Role.ADMIN),)
    assert service.principal_of(state, "alice", Kind.DEMO).bindings == ()


# Tokens.


def test_a_token_works_for_its_owner_with_its_scopes(house: Gatehouse) -> None:
    house.grant("alice", Role.RPM)
    secret = house.issue("alice", scopes=[Permission.USE, Permission.SEE], team="alpha", expires=house.now + DAY)
    prefix, name, _ = secret.split("_", 2)
    assert prefix == "plim"
    found = house.holder(secret)
    want_scopes = frozenset({Permission.SEE, Permission.USE})
    assert found == Principal("alice", Kind.PERSON, (Binding(Role.RPM, "alpha"),), want_scopes, name)
    assert judge(found, Permission.USE, "alpha").is_allowed
    assert not judge(found, Permission.USE, "beta").is_allowed
    assert not judge(found, Permission.DECIDE_QUOTA, "alpha").is_allowed


def test_neither_a_secret_nor_its_hash_is_in_the_ledger_and_no_secret_anywhere(house: Gatehouse, dsn: str) -> None:
    secret = house.issue("alice", expires=house.now + DAY)
    session = service.open_session(house.store, "alice", Kind.PERSON, (), house.now, hours=8)
    link, _ = service.make_link(house.keeper, "alice", 5, actor="root")
    with raw(dsn) as run:
        events, papers = str(run("SELECT * FROM events")), str(run("SELECT * FROM papers"))
    digest = json.loads(next(each.body for each in house.store.papers("token")))["hash"]
    assert digest in papers
    assert digest not in events
    for each in (secret, secret.split("_", 2)[2], session, link):
        assert each not in events + papers


WRONG = {
    "another ending": lambda secret: secret[:-1] + ("a" if secret[-1] != "a" else "b"),
    "only the beginning": lambda secret: secret[:20],
    "nothing after the id": lambda secret: "_".join(secret.split("_", 2)[:2]) + "_",
    "without the prefix": lambda secret: secret.partition("_")[2],
    "another prefix": lambda secret: "ghp" + secret[4:],
    "another id": lambda secret: f"plim_000000000000_{secret.split('_', 2)[2]}",
    "something added": lambda secret: secret + "x",
    "empty": lambda _: "",
    "not letters": lambda secret: secret + "\x00",
    "other letters": lambda secret: secret + "ä",
    "half a letter": lambda secret: secret + "\ud800",
    "endless": lambda secret: secret + "x" * 100_000,
    "capitals": str.upper,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_is_nobodys(sqlite_dsn: str, name: str) -> None:
    with Gatehouse(sqlite_dsn) as house:
        secret = house.issue("alice", expires=None)
        assert house.holder(secret) is not None
        wrong = WRONG[name](secret)
        assert house.holder(wrong) is None
        assert house.visitor(wrong) is None
        assert service.redeem_link(house.store, wrong, house.now) is None
        assert service.end_session(house.store, wrong) is False


def test_a_token_ends_when_it_says_and_when_it_is_revoked(house: Gatehouse) -> None:
    short = house.issue("alice", expires=house.now + DAY)
    ever = house.issue("alice", expires=None)
    house.now += DAY - timedelta(seconds=1)
    assert house.holder(short) is not None
    house.now += timedelta(seconds=1)
    assert house.holder(short) is None
    found, events = service.revoke_token(house.keeper, ever.split("_")[1], actor="root", reason="leaked")
    assert (found.owner, events[0].subject, events[0].reason) == ("alice", "access/alice", "leaked")
    assert house.holder(ever) is None
    assert house.store.papers("token")[0].id == short.split("_")[1]
    with pytest.raises(NotFound):
        service.revoke_token(house.keeper, ever.split("_")[1], actor="root")
    assert house.store.drop_expired(house.now) == 1
    assert house.holder(short) is None


def test_a_token_that_is_revoked_stays_dead_though_its_paper_comes_back(house: Gatehouse) -> None:
    """A restored table, or a crash between the event and the removal of the hash."""
    secret = house.issue("alice", expires=None)
    (kept,) = house.store.papers("token")
    service.revoke_token(house.keeper, kept.id, actor="root")
    house.store.keep_paper(kept)
    assert house.holder(secret) is None


def test_a_token_without_its_event_or_without_its_paper_works_for_nobody(house: Gatehouse) -> None:
    secret = house.issue("alice", expires=None)
    (kept,) = house.store.papers("token")
    house.store.drop_paper("token", kept.id)
    assert house.holder(secret) is None
    house.store.keep_paper(Paper("token", "ffffffffffff", "", kept.body))
    assert house.holder(secret.replace(kept.id, "ffffffffffff")) is None


def test_a_token_loses_what_its_owner_loses_at_once(house: Gatehouse) -> None:
    house.grant("alice", Role.MEMBER, "alpha")
    secret = house.issue("alice", expires=None)
    assert judge(house.holder(secret), Permission.USE, "alpha").is_allowed
    house.revoke("alice", Role.MEMBER, "alpha")
    assert not judge(house.holder(secret), Permission.SEE).is_allowed


def test_a_persons_token_has_the_groups_of_the_last_sign_in_for_a_month(house: Gatehouse) -> None:
    secret = house.issue("alice@example.org", expires=None)
    mapping = read_mapping("post=member:post")
    assert house.holder(secret, mapping) == Principal("alice@example.org", Kind.PERSON, token_id=secret.split("_")[1])
    service.open_session(house.store, "Alice@example.org", Kind.PERSON, ("post",), house.now, hours=8)
    assert judge(house.holder(secret, mapping), Permission.USE, "post").is_allowed
    assert not judge(house.holder(secret), Permission.USE, "post").is_allowed, "not mapped any more"
    house.now += timedelta(days=29)
    assert judge(house.holder(secret, mapping), Permission.USE, "post").is_allowed
    house.now += timedelta(days=2)
    assert not judge(house.holder(secret, mapping), Permission.USE, "post").is_allowed
    service.open_session(house.store, "alice@example.org", Kind.PERSON, (), house.now, hours=8)
    assert not judge(house.holder(secret, mapping), Permission.USE, "post").is_allowed


def test_a_services_token_has_no_groups_of_a_person_of_its_name(house: Gatehouse) -> None:
    service.open_session(house.store, "prom", Kind.PERSON, ("ops",), house.now, hours=8)
    secret = house.issue("service:prom", kind=Kind.SERVICE, expires=None)
    found = house.holder(secret, read_mapping("ops=operator"))
    assert found is not None
    assert (found.label, found.bindings) == ("service:prom", ())


def test_tokens_are_listed_without_secrets_and_bounded(sqlite_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.access.desk.TOKENS_PER_OWNER_MAX", 3)
    with Gatehouse(sqlite_dsn) as house:
        for _ in range(2):
            house.issue("alice", expires=house.now + DAY)
        house.issue("prom", kind=Kind.SERVICE, expires=None)
        house.issue("alice", expires=None)
        with pytest.raises(Refused) as refused:
            house.issue("alice", expires=None)
        assert refused.value.code == "too_many_tokens"
        house.now += 2 * DAY
        house.issue("alice", expires=None)
        listed = service.tokens(house.keeper.state())
        assert [(each.owner, each.expires_at) for each in listed] == [("alice", None), ("alice", None), ("prom", None)]
        with pytest.raises(Refused) as refused:
            house.issue("alice", expires=house.now)
        assert refused.value.code == "expired_already"


def test_a_role_under_a_name_that_nobody_may_have_any_more_can_be_taken(house: Gatehouse) -> None:
    house.keeper.commit([Draft(RoleGranted("plimsoll", Role.ADMIN))], actor="root", read_at=None)
    house.revoke("plimsoll", Role.ADMIN)
    assert house.keeper.state().of(Access).bindings_of("plimsoll") == ()
    with pytest.raises(UsageError):
        house.revoke("plimsoll", Role.ADMIN)


# Sessions and links.


def test_a_session_works_until_it_ends(house: Gatehouse) -> None:
    house.grant("group:rpms", Role.RPM)
    secret = service.open_session(house.store, "Alice@Example.org", Kind.PERSON, ("rpms",), house.now, hours=8)
    other = service.open_session(house.store, "alice@example.org", Kind.PERSON, (), house.now, hours=9)
    assert house.visitor(secret) == Principal("alice@example.org", Kind.PERSON, (Binding(Role.RPM),))
    assert house.holder(secret) is None, "a session is no token"
    house.revoke("group:rpms", Role.RPM)
    assert house.visitor(secret) == Principal("alice@example.org", Kind.PERSON, ())
    house.now += timedelta(hours=8)
    assert house.visitor(secret) is None
    assert house.visitor(other) is not None
    assert service.end_session(house.store, other) is True
    assert house.visitor(other) is None
    assert service.end_session(house.store, other) is False


def test_all_sessions_of_somebody_end_and_nobody_elses(house: Gatehouse) -> None:
    mine = [service.open_session(house.store, "Alice@example.org", Kind.PERSON, (), house.now, hours=8) for _ in "ab"]
    service.open_session(house.store, "alice@example.org", Kind.PERSON, (), house.now, hours=0)
    other = service.open_session(house.store, "bob@example.org", Kind.PERSON, (), house.now, hours=8)
    link, _ = service.make_link(house.keeper, "alice@example.org", 5, actor="root")
    others_link, _ = service.make_link(house.keeper, "bob@example.org", 5, actor="root")
    head = house.store.head().revision
    would, _ = service.end_sessions(house.keeper, "ALICE@example.org", actor="root", is_dry_run=True)
    assert (would, house.store.head().revision, house.visitor(mine[0]) is not None) == ((2, 1), head, True)
    ended, events = service.end_sessions(house.keeper, "ALICE@example.org", actor="root", reason="lost a laptop")
    assert ended == (2, 1)
    assert [(event.subject, event.kind, event.actor, event.reason) for event in events] == [
        ("access/alice@example.org", "access.sessions_ended", "root", "lost a laptop")
    ]
    assert [house.visitor(each) for each in mine] == [None, None]
    assert service.redeem_link(house.store, link, house.now) is None
    assert house.visitor(other) is not None
    assert service.redeem_link(house.store, others_link, house.now) == "bob@example.org"
    assert service.end_sessions(house.keeper, "alice@example.org", actor="root") == ((0, 0), []), "there are none"


def test_nobody_opens_a_session_as_a_service(house: Gatehouse) -> None:
    with pytest.raises(UsageError):
        service.open_session(house.store, "service:prom", Kind.PERSON, (), house.now, hours=8)


def test_a_link_works_once_and_in_time(house: Gatehouse) -> None:
    secret, late = (service.make_link(house.keeper, "alice", 5, actor="root")[0] for _ in range(2))
    house.now += timedelta(minutes=4)
    assert service.redeem_link(house.store, secret, house.now) == "alice"
    assert service.redeem_link(house.store, secret, house.now) is None
    house.now += timedelta(minutes=1)
    assert service.redeem_link(house.store, late, house.now) is None
    assert service.redeem_link(house.store, late, MONDAY) is None, "and who came late has used it up"


def test_a_link_by_hand_is_written_down(house: Gatehouse) -> None:
    secret, until = service.make_link(house.keeper, "Alice@example.org", 5, actor="root", reason="no issuer yet")
    (event,) = house.store.events()
    assert (event.subject, event.actor, event.reason) == ("access/alice@example.org", "root", "no issuer yet")
    assert until == house.now + timedelta(minutes=5)
    assert service.redeem_link(house.store, secret, house.now) == "alice@example.org"


def test_processes_that_open_a_link_at_once_get_in_once(dsn: str) -> None:
    with Gatehouse(dsn) as house:
        for _ in range(3):
            secret, _ = service.make_link(house.keeper, "alice", 5, actor="root")
            moment = time.monotonic() + 0.1
            with ExitStack() as stack:
                visitors = [stack.enter_context(Child(redeem_at, dsn, secret, moment)) for _ in range(3)]
                assert {child.hear() for child in visitors} == {"ready"}
                found = [child.hear() for child in visitors]
            assert sorted(found, key=str) == [None, None, "alice"]
