"""Who may do what, and why not. Pure.

Everything is denied that no binding allows. A decision explains itself: what the asker is, what the act needs, and what
to type to get there. It must never allow more for a token than for its owner, nor for one team what is of another.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from plimsoll.access.model import (
    OF_A_TEAM,
    PERMISSIONS,
    SEEN_FROM_ANYWHERE,
    TEAM_ROLES,
    Binding,
    Kind,
    Permission,
    Principal,
    Role,
    holder_of,
    make_binding,
    read_role,
)
from plimsoll.errors import UsageError

ACTS = {
    Permission.SEE: "seeing the fleet",
    Permission.SEE_WAVES: "seeing campaigns",
    Permission.TICK_WAVES: "ticking off waves",
    Permission.USE: "acting",
    Permission.DECIDE_QUOTA: "deciding about quota",
    Permission.OPERATE: "operating nodes, campaigns and clusters",
    Permission.SIGNAL: "sending signals of nodes",
    Permission.ADMINISTER: "administering access, imports and policies",
    Permission.NOBODY_NEEDED: "this",
}
SIGN_IN = "sign in on the page, or send a token (Authorization: Bearer plim_…): plimsoll access token issue"
ROLES_SHOWN = 4


class Verdict(msgspec.Struct, frozen=True):
    """Yes or no with the reason. `needs` are the roles that would do, the one that may least first."""

    is_allowed: bool
    code: str
    says: str
    next_step: str = ""
    needs: tuple[Role, ...] = ()


def judge(principal: Principal | None, permission: Permission, team: str = "", *, act: str = "") -> Verdict:
    """May they? `team` is whose quota or work it is about; "" is everybody's. `act` says what is asked, in words."""
    if permission is Permission.NOBODY_NEEDED:
        return Verdict(True, "allowed", "nobody needs to sign in for this")
    needs = roles_with(permission)
    wanted = _wanted(permission, team, act)
    if principal is None:
        return Verdict(False, "not_signed_in", f"nobody is signed in; {wanted} needs {_any_of(needs)}", SIGN_IN, needs)
    if principal.scopes is not None and permission not in principal.scopes:
        return _out_of_scope(principal, permission, wanted, needs)
    for binding in principal.bindings:
        if allows(binding, permission, team):
            return Verdict(True, "allowed", f"{principal.label} is {binding}; that is enough for {wanted}", needs=needs)
    return _too_small(principal, permission, team, wanted, needs)


def allows(binding: Binding, permission: Permission, team: str = "") -> bool:
    """Whether one binding alone is enough."""
    if permission not in PERMISSIONS[binding.role]:
        return False
    if not binding.team or permission in SEEN_FROM_ANYWHERE:
        return True
    return permission in OF_A_TEAM and binding.team == team


def roles_with(permission: Permission) -> tuple[Role, ...]:
    """The roles that have a permission, the one that may least first."""
    return tuple(role for role, permissions in PERMISSIONS.items() if permission in permissions)


def cut_to_team(bindings: Iterable[Binding], team: str) -> tuple[Binding, ...]:
    """What is left of bindings for somebody who may act for one team only; all of them where no team is said."""
    if not team:
        return tuple(bindings)
    return tuple(dict.fromkeys(Binding(each.role, team) for each in bindings if each.team in ("", team)))


def may_issue(principal: Principal | None, owner: str, kind: Kind, *, act: str = "making a token") -> Verdict:
    """Who may make, see or revoke somebody's tokens: anybody their own, once signed in; an admin everybody's.

    A token never makes a token, except an admin's that is for administering: else a narrow one could make a wide one.
    An `owner` of "" is everybody.
    """
    if principal is None:
        return Verdict(False, "not_signed_in", f"nobody is signed in; {act} needs somebody who is", SIGN_IN)
    is_own = kind == principal.kind and owner == principal.name and kind != Kind.DEMO
    if is_own and not principal.token_id and principal.scopes is None:
        return Verdict(True, "allowed", f"{principal.label} is signed in; {act} is their own affair")
    whose = f" of {holder_of(owner, kind)}" if owner else ""
    verdict = judge(principal, Permission.ADMINISTER, act=f"{act}{whose}")
    if is_own and not verdict.is_allowed:
        return Verdict(
            False,
            "token_by_token",
            f"a token of {principal.label} is not enough for {act}: it could make one that is wider than itself",
            "sign in on the page and do it there",
        )
    return verdict


def where_allowed(principal: Principal | None, permission: Permission) -> tuple[Role | None, tuple[str, ...]]:
    """Where they may: the role that lets them on the whole fleet, else the teams for which they may."""
    if principal is None or (principal.scopes is not None and permission not in principal.scopes):
        return None, ()
    for binding in principal.bindings:
        if allows(binding, permission):
            return binding.role, ()
    teams = {each.team for each in principal.bindings if each.team and allows(each, permission, each.team)}
    return None, tuple(sorted(teams))


def bindings_of_groups(groups: Collection[str], mapping: Mapping[str, Sequence[Binding]]) -> tuple[Binding, ...]:
    """The bindings that follow from somebody's groups; none for groups that nobody mapped."""
    return tuple(dict.fromkeys(binding for group in groups for binding in mapping.get(group, ())))


def read_mapping(text: str) -> dict[str, tuple[Binding, ...]]:
    """`gpu-admins=admin, posttraining=member:posttraining`: which role a group of the issuer gives.

    Where a semicolon is in it, it separates by semicolons only: names of groups from a directory have commas.
    """
    mapping: dict[str, tuple[Binding, ...]] = {}
    for piece in filter(None, (each.strip() for each in text.split(";" if ";" in text else ","))):
        group, separator, given = piece.rpartition("=")
        role, _, team = given.partition(":")
        if not separator or not group.strip():
            raise UsageError(
                "bad_groups",
                f"{piece[:80]!r} maps no group to a role",
                next_step="GROUP=ROLE or GROUP=ROLE:TEAM, joined by commas: gpu-admins=admin,alpha=member:alpha",
            )
        binding = make_binding(read_role(role.strip()), team.strip())
        mapping[group.strip()] = (*mapping.get(group.strip(), ()), binding)
    return mapping


def _wanted(permission: Permission, team: str, act: str) -> str:
    words = act or ACTS[permission]
    if permission not in OF_A_TEAM:
        return words
    return f"{words} for {team}" if team else f"{words} for every team"


def _too_small(
    principal: Principal, permission: Permission, team: str, wanted: str, needs: tuple[Role, ...]
) -> Verdict:
    is_of_team = permission in OF_A_TEAM and bool(team)
    where = "there or on the fleet" if is_of_team else "" if permission in SEEN_FROM_ANYWHERE else "on the fleet"
    has = _roles_text(principal.bindings)
    role = needs[0]
    flag = f" --team {shlex.quote(team)}" if is_of_team and role in TEAM_ROLES else ""
    who = holder_of(principal.name, principal.kind)
    return Verdict(
        False,
        "role_too_small" if principal.bindings else "no_role",
        f"{principal.label} {has}; {wanted} needs {_any_of(needs)} {where}".rstrip(),
        f"ask an admin: plimsoll access grant {shlex.quote(who)} {role}{flag}",
        needs,
    )


def _out_of_scope(principal: Principal, permission: Permission, wanted: str, needs: tuple[Role, ...]) -> Verdict:
    scopes = ", ".join(sorted(principal.scopes or ())) or "nothing"
    return Verdict(
        False,
        "out_of_scope",
        f"this token of {principal.label} is for {scopes}; {wanted} is {permission}",
        f"use a token with it: plimsoll access token issue {holder_of(principal.name, principal.kind)}"
        f" --scope {permission}",
        needs,
    )


def _roles_text(bindings: Sequence[Binding]) -> str:
    if not bindings:
        return "has no role"
    shown = [str(each) for each in sorted(bindings)]
    more = f" and {len(shown) - ROLES_SHOWN} more" if len(shown) > ROLES_SHOWN else ""
    return f"is {', '.join(shown[:ROLES_SHOWN])}{more}"


def _any_of(roles: Sequence[Role]) -> str:
    names = [str(role) for role in roles]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
