"""Who may do what: the table of roles, by hand, and what a "no" says."""

from __future__ import annotations

import pytest

from plimsoll.access.decide import bindings_of_groups, cut_to_team, judge, may_issue, read_mapping, where_allowed
from plimsoll.access.model import (
    PERMISSIONS,
    SCOPES,
    Binding,
    Kind,
    Permission,
    Principal,
    Role,
    Scope,
    holder_name,
    make_binding,
    person_name,
)
from plimsoll.errors import UsageError

FLEET = "see see_waves tick_waves use decide_quota operate signal administer"
WANT_FLEET_WIDE = {
    "viewer": "see see_waves",
    "member": "see see_waves use",
    "rpm": "see see_waves use decide_quota",
    "operator": "see see_waves tick_waves operate signal",
    "admin": FLEET,
    "partner": "see_waves tick_waves",
}
"""For a role of the fleet, whatever team it is about."""
WANT_OF_ALPHA = {
    "viewer": ("see see_waves", "see see_waves"),
    "member": ("see see_waves use", "see see_waves"),
    "rpm": ("see see_waves use decide_quota", "see see_waves"),
    "operator": ("see see_waves", "see see_waves"),
    "admin": ("see see_waves use decide_quota", "see see_waves"),
    "partner": ("see_waves", "see_waves"),
}
"""For a role of team alpha: what they may for alpha, and for another team or for everybody."""


def person(*bindings: Binding, scopes: frozenset[Permission] | None = None, token_id: str = "") -> Principal:
    return Principal("alice", Kind.PERSON, bindings, scopes, token_id)


def may(principal: Principal | None, team: str = "") -> str:
    return " ".join(each for each in SCOPES if judge(principal, each, team).is_allowed)


@pytest.mark.parametrize("role", Role)
def test_a_role_of_the_fleet(role: Role) -> None:
    for team in ("", "alpha", "beta"):
        assert may(person(Binding(role)), team) == WANT_FLEET_WIDE[role]


@pytest.mark.parametrize("role", Role)
def test_a_role_of_a_team(role: Role) -> None:
    want_own, want_other = WANT_OF_ALPHA[role]
    principal = person(Binding(role, "alpha"))
    assert (may(principal, "alpha"), may(principal, "beta"), may(principal)) == (want_own, want_other, want_other)


def test_every_role_is_in_the_table_and_nobody_may_nothing_named() -> None:
    assert set(PERMISSIONS) == set(Role)
    assert not any(Permission.NOBODY_NEEDED in permissions for permissions in PERMISSIONS.values())


def test_nobody_may_nothing_but_what_is_open() -> None:
    for team in ("", "alpha"):
        assert may(None, team) == may(person(), team) == ""
    assert judge(None, Permission.NOBODY_NEEDED).is_allowed
    assert judge(person(scopes=frozenset()), Permission.NOBODY_NEEDED).is_allowed


def test_scopes_cut_and_never_give() -> None:
    scopes = frozenset({Permission.SEE, Permission.OPERATE})
    assert may(person(Binding(Role.MEMBER), scopes=scopes)) == "see"
    assert may(person(Binding(Role.ADMIN), scopes=scopes)) == "see operate"
    assert may(person(Binding(Role.ADMIN), scopes=frozenset())) == ""


def test_bindings_add_up() -> None:
    principal = person(Binding(Role.PARTNER), Binding(Role.RPM, "alpha"), Binding(Role.MEMBER, "beta"))
    assert may(principal, "alpha") == "see see_waves tick_waves use decide_quota"
    assert may(principal, "beta") == "see see_waves tick_waves use"
    assert may(principal, "gamma") == "see see_waves tick_waves"


def test_a_token_for_one_team_has_what_its_owner_has_there() -> None:
    bindings = (Binding(Role.ADMIN), Binding(Role.RPM, "alpha"), Binding(Role.MEMBER, "beta"))
    assert may(person(*cut_to_team(bindings, "alpha")), "alpha") == "see see_waves use decide_quota"
    assert may(person(*cut_to_team(bindings, "alpha")), "beta") == "see see_waves"
    assert cut_to_team(bindings, "") == bindings
    assert cut_to_team(bindings[1:], "gamma") == ()


SAYS = {
    "nobody signed in": (
        judge(None, Permission.DECIDE_QUOTA, "alpha"),
        "not_signed_in",
        "nobody is signed in; deciding about quota for alpha needs rpm or admin",
        "sign in on the page, or send a token (Authorization: Bearer plim_…): plimsoll access token issue",
    ),
    "of another team": (
        judge(person(Binding(Role.MEMBER, "post")), Permission.DECIDE_QUOTA, "pre", act="approving a request"),
        "role_too_small",
        "alice is member of post; approving a request for pre needs rpm or admin there or on the fleet",
        "ask an admin: plimsoll access grant alice rpm --team pre",
    ),
    "a team whose name has a blank": (
        judge(person(Binding(Role.VIEWER)), Permission.USE, "team one"),
        "role_too_small",
        "alice is viewer of the fleet; acting for team one needs member, rpm or admin there or on the fleet",
        "ask an admin: plimsoll access grant alice member --team 'team one'",
    ),
    "for every team": (
        judge(person(Binding(Role.RPM, "post")), Permission.DECIDE_QUOTA),
        "role_too_small",
        "alice is rpm of post; deciding about quota for every team needs rpm or admin on the fleet",
        "ask an admin: plimsoll access grant alice rpm",
    ),
    "no role at all": (
        judge(person(), Permission.SEE),
        "no_role",
        "alice has no role; seeing the fleet needs viewer, member, rpm, operator or admin",
        "ask an admin: plimsoll access grant alice viewer",
    ),
    "a service": (
        judge(Principal("prom", Kind.SERVICE), Permission.SIGNAL),
        "no_role",
        "service:prom has no role; sending signals of nodes needs operator or admin on the fleet",
        "ask an admin: plimsoll access grant service:prom operator",
    ),
    "a narrow token": (
        judge(person(Binding(Role.ADMIN), scopes=frozenset({Permission.SEE})), Permission.OPERATE),
        "out_of_scope",
        "this token of alice is for see; operating nodes, campaigns and clusters is operate",
        "use a token with it: plimsoll access token issue alice --scope operate",
    ),
    "many roles": (
        judge(person(*(Binding(Role.MEMBER, f"t{n}") for n in range(6))), Permission.ADMINISTER),
        "role_too_small",
        "alice is member of t0, member of t1, member of t2, member of t3 and 2 more; administering access, imports and"
        " policies needs admin on the fleet",
        "ask an admin: plimsoll access grant alice admin",
    ),
}


@pytest.mark.parametrize("name", SAYS)
def test_a_no_says_what_is_missing_and_what_to_type(name: str) -> None:
    verdict, want_code, want_says, want_next = SAYS[name]
    assert not verdict.is_allowed
    assert (verdict.code, verdict.says, verdict.next_step) == (want_code, want_says, want_next)
    assert verdict.needs


def test_a_yes_says_by_which_role() -> None:
    verdict = judge(person(Binding(Role.VIEWER), Binding(Role.RPM, "alpha")), Permission.DECIDE_QUOTA, "alpha")
    assert verdict.says == "alice is rpm of alpha; that is enough for deciding about quota for alpha"


ISSUING = {
    "their own, signed in": (person(Binding(Role.VIEWER)), "alice", Kind.PERSON, "allowed"),
    "their own without any role": (person(), "alice", Kind.PERSON, "allowed"),
    "their own, by a token": (person(Binding(Role.VIEWER), token_id="x"), "alice", Kind.PERSON, "token_by_token"),
    "somebody else's": (person(Binding(Role.RPM)), "bob", Kind.PERSON, "role_too_small"),
    "of a service that has their name": (person(Binding(Role.RPM)), "alice", Kind.SERVICE, "role_too_small"),
    "an admin for a service": (person(Binding(Role.ADMIN)), "prom", Kind.SERVICE, "allowed"),
    "an admin by a token": (person(Binding(Role.ADMIN), token_id="x"), "bob", Kind.PERSON, "allowed"),
    "an admin by a narrow token": (
        person(Binding(Role.ADMIN), scopes=frozenset({Permission.SEE}), token_id="x"),
        "bob",
        Kind.PERSON,
        "out_of_scope",
    ),
    "everybody's": (person(Binding(Role.RPM)), "", Kind.PERSON, "role_too_small"),
    "an admin everybody's": (person(Binding(Role.ADMIN)), "", Kind.PERSON, "allowed"),
    "nobody": (None, "alice", Kind.PERSON, "not_signed_in"),
    "a demo's visitor": (Principal("x", Kind.DEMO), "x", Kind.DEMO, "no_role"),
}


@pytest.mark.parametrize("name", ISSUING)
def test_who_may_make_a_token(name: str) -> None:
    principal, owner, kind, want_code = ISSUING[name]
    verdict = may_issue(principal, owner, kind)
    assert (verdict.code, verdict.is_allowed) == (want_code, want_code == "allowed")


WHERE = {
    "on the fleet": (person(Binding(Role.MEMBER, "post"), Binding(Role.RPM)), (Role.RPM, ())),
    "for two teams": (person(Binding(Role.RPM, "pre"), Binding(Role.MEMBER, "post")), (None, ("post", "pre"))),
    "nowhere": (person(Binding(Role.OPERATOR)), (None, ())),
    "by a token that is for it": (person(Binding(Role.RPM), scopes=frozenset({Permission.USE})), (Role.RPM, ())),
    "by a token that is for something else": (
        person(Binding(Role.ADMIN), scopes=frozenset({Permission.SEE})),
        (None, ()),
    ),
    "nobody": (None, (None, ())),
}


@pytest.mark.parametrize("name", WHERE)
def test_where_somebody_may_act(name: str) -> None:
    principal, want = WHERE[name]
    assert where_allowed(principal, Permission.USE) == want


def test_a_scope_is_every_permission_that_somebody_needs() -> None:
    assert {scope.value for scope in Scope} == {each.value for each in Permission} - {Permission.NOBODY_NEEDED.value}


def test_groups_give_the_roles_that_are_mapped_to_them() -> None:
    mapping = read_mapping("gpu-admins=admin, post=member:post, post=rpm:pre team,")
    assert mapping == {
        "gpu-admins": (Binding(Role.ADMIN),),
        "post": (Binding(Role.MEMBER, "post"), Binding(Role.RPM, "pre team")),
    }
    found = bindings_of_groups(("everybody", "post", "GPU-ADMINS"), mapping)
    assert found == (Binding(Role.MEMBER, "post"), Binding(Role.RPM, "pre team"))
    assert read_mapping("") == {}
    assert read_mapping("cn=a,ou=b=admin;x=viewer") == {
        "cn=a,ou=b": (Binding(Role.ADMIN),),
        "x": (Binding(Role.VIEWER),),
    }


@pytest.mark.parametrize("text", ["admins", "=admin", "a=king", "a=admin:post", "a=", "a=member: x\x1b"])
def test_a_mapping_that_maps_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_mapping(text)


NAMES = {
    "Alice@Example.ORG": "alice@example.org",
    " bob ": "bob",
    "auth0|Xy": "auth0|Xy",
    "service:Prom": "service:Prom",
    "group:cn=a,ou=b": "group:cn=a,ou=b",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_holder_is_kept_as(name: str) -> None:
    assert holder_name(name) == NAMES[name]


BAD_NAMES = ["", " ", "a b", "a\x1bb", "a\nb", "x" * 201, "service:", "group:", "service:a b", "Service:x", "TOKEN:x"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_nobody_has(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        holder_name(name)
    assert refused.value.code == "bad_name"
    assert refused.value.message.isprintable()


RESERVED = ["plimsoll", "Plimsoll", "plimsoll:lifecycle", "demo", "campaign:nic", "http:prometheus"]
"""Who acts in the ledger and is no person."""


@pytest.mark.parametrize("name", ["service:prometheus", "GROUP:x", "demo:alice", "plimsoll:x", "session: x", *RESERVED])
def test_nobody_signs_in_under_the_name_of_something_else(name: str) -> None:
    with pytest.raises(UsageError):
        person_name(name)


def test_nobody_signs_in_under_an_address_that_only_looks_like_anothers() -> None:
    for name in ("ali\u212a@example.org", "\u0430lice@example.org", "alice@ex\u00e4mple.org"):
        with pytest.raises(UsageError) as refused:
            person_name(name)
        assert refused.value.code == "bad_name"
        assert refused.value.message.isascii()


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN, Role.PARTNER])
def test_some_roles_are_of_the_fleet_only(role: Role) -> None:
    assert make_binding(role) == Binding(role)
    with pytest.raises(UsageError) as refused:
        make_binding(role, "alpha")
    assert refused.value.code == "role_of_the_fleet"


def test_what_stands_in_the_ledger() -> None:
    labels = [Principal("prom", kind).label for kind in Kind]
    assert labels == ["prom", "service:prom", "demo:prom"]
