"""Never allowed without a binding, never more than the owner, never for another team, never after the end."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.access import service
from plimsoll.access.decide import cut_to_team, judge
from plimsoll.access.model import PERMISSIONS, SCOPES, Binding, Kind, Permission, Principal, Role
from tests.support.access import Gatehouse
from tests.support.chance import new_chance

TEAMS = ("", "alpha", "beta")
ROUNDS = 60

bindings = st.lists(st.builds(Binding, st.sampled_from(Role), st.sampled_from(TEAMS)), max_size=4).map(tuple)
permissions = st.sampled_from(SCOPES)
scopes = st.none() | st.frozensets(permissions)
teams = st.sampled_from(TEAMS)


@given(bindings, scopes, permissions, teams)
def test_never_without_a_binding_that_has_it(
    held: tuple[Binding, ...], cut: frozenset[Permission] | None, permission: Permission, team: str
) -> None:
    verdict = judge(Principal("alice", Kind.PERSON, held, cut), permission, team)
    able = [each for each in held if permission in PERMISSIONS[each.role]]
    if verdict.is_allowed:
        assert able
        assert cut is None or permission in cut
    else:
        assert verdict.code != "allowed"
        assert verdict.next_step, "every no says what to do"
        assert verdict.needs


@given(bindings, scopes, permissions, teams)
def test_a_team_never_acts_for_another(
    held: tuple[Binding, ...], cut: frozenset[Permission] | None, permission: Permission, team: str
) -> None:
    """Taking away every binding of other teams changes nothing but what may be seen."""
    own = tuple(each for each in held if each.team in ("", team))
    with_others = judge(Principal("alice", Kind.PERSON, held, cut), permission, team)
    if permission not in (Permission.SEE, Permission.SEE_WAVES):
        assert with_others.is_allowed == judge(Principal("alice", Kind.PERSON, own, cut), permission, team).is_allowed


@given(bindings, st.none() | st.frozensets(permissions), teams, permissions, teams)
def test_a_token_never_may_more_than_its_owner(
    held: tuple[Binding, ...], cut: frozenset[Permission] | None, token_team: str, permission: Permission, team: str
) -> None:
    token = Principal("alice", Kind.PERSON, cut_to_team(held, token_team), cut, "t")
    if judge(token, permission, team).is_allowed:
        assert judge(Principal("alice", Kind.PERSON, held), permission, team).is_allowed
        assert not token_team or permission in (Permission.SEE, Permission.SEE_WAVES) or team == token_team


@given(bindings, bindings, permissions, teams)
def test_more_roles_never_take_a_right_away(
    held: tuple[Binding, ...], more: tuple[Binding, ...], permission: Permission, team: str
) -> None:
    if judge(Principal("alice", Kind.PERSON, held), permission, team).is_allowed:
        assert judge(Principal("alice", Kind.PERSON, held + more), permission, team).is_allowed


def test_nothing_that_was_revoked_or_is_over_ever_works(dsn: str) -> None:
    """A random life of a gatehouse against a plain list of who has what; on both databases."""
    chance = new_chance()
    people = ("alice", "bob")
    roles: set[tuple[str, Binding]] = set()
    living: dict[str, tuple[str, frozenset[Permission] | None, str, float]] = {}
    dead: set[str] = set()
    with Gatehouse(dsn) as house:
        for step in range(ROUNDS):
            who, binding = chance.choice(people), Binding(chance.choice(list(Role)), chance.choice(TEAMS))
            act = chance.choice(["grant", "grant", "revoke", "issue", "end", "wait", "clean"])
            if act == "grant":
                house.grant(who, binding.role, binding.team)
                roles.add((who, binding))
            elif act == "revoke" and roles:
                who, binding = chance.choice(sorted(roles))
                house.revoke(who, binding.role, binding.team)
                roles.discard((who, binding))
            elif act == "issue":
                narrow: frozenset[Permission] | None = (
                    None if chance.random() < 0.5 else frozenset(chance.sample(SCOPES, 3))
                )
                hours, team = chance.uniform(1, 20), chance.choice(TEAMS)
                secret = house.issue(
                    who,
                    scopes=None if narrow is None else sorted(narrow),
                    team=team,
                    expires=house.now + timedelta(hours=hours),
                )
                living[secret] = (who, narrow, team, (house.now + timedelta(hours=hours)).timestamp())
            elif act == "end" and living:
                secret = chance.choice(sorted(living))
                service.revoke_token(house.keeper, secret.split("_")[1], actor="tester")
                del living[secret]
                dead.add(secret)
            elif act == "wait":
                house.now += timedelta(hours=chance.uniform(0, 8))
            elif act == "clean":
                house.store.drop_expired(house.now)
            for secret in [each for each, life in living.items() if life[3] <= house.now.timestamp()]:
                del living[secret]
                dead.add(secret)
            assert all(house.holder(secret) is None for secret in dead), f"step {step}: {act}"
            for secret, (owner, cut, team, _) in living.items():
                found = house.holder(secret)
                assert found is not None, f"step {step}: {act}"
                own = Principal(owner, Kind.PERSON, tuple(each for name, each in roles if name == owner))
                for permission in SCOPES:
                    for about in TEAMS:
                        if judge(found, permission, about).is_allowed:
                            assert judge(own, permission, about).is_allowed
                            assert cut is None or permission in cut
                            assert not team or found.bindings
