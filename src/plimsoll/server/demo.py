"""The scene of a served demo: its people and their roles, a correction under way. Nothing here is anybody real."""

from __future__ import annotations

from plimsoll.access.fold import Access
from plimsoll.access.model import Binding, Role
from plimsoll.access.service import grant
from plimsoll.state.keeper import Keeper

REASON = "the demo"
ACTOR = "demo"
TEAM = "posttraining"
ROLES = {
    "ada@example.org": (Binding(Role.MEMBER, TEAM),),
    "ines@example.org": (Binding(Role.RPM),),
    "omar@example.org": (Binding(Role.OPERATOR),),
    "noor@example.org": (Binding(Role.OPERATOR),),
    "pia@example.com": (Binding(Role.PARTNER),),
    "root@example.org": (Binding(Role.ADMIN),),
}


def set_scene(keeper: Keeper) -> None:
    """Whatever is not there yet; a demo that was served before is left as it is."""
    for name, bindings in ROLES.items():
        for binding in bindings:
            if binding not in keeper.state().of(Access).bindings_of(name):
                grant(keeper, name, binding, actor=ACTOR, reason=REASON)
