"""Every form of every page says only what its route takes: a name that it does not know is refused, whoever presses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import plimsoll.server
from plimsoll.server.call import Operation
from plimsoll.server.routes import API, ROUTES

TEMPLATES = Path(plimsoll.server.__file__).parent / "templates"
_FORM = re.compile(r'<form\b[^>]*?data-act="(\w+) ([^"]+)"[^>]*>(.*?)</form>', re.DOTALL)
_FOLDED = re.compile(r'\{% call act\([^%]*?"(POST) (/[^"]+)"[^%]*?\) %\}(.*?)\{% endcall %\}', re.DOTALL)
_LEFT_OUT = re.compile(r"<div data-leave-out.*?</div>", re.DOTALL)
_TAG = re.compile(r'<(?:input|select|textarea)\b[^>]*?\bname="(\w+)"')
_MACRO = re.compile(r'\b(?:field|select)\((?:"[^"]*"|[^,"])+, "(\w+)"')
_HOLE = re.compile(r"\{(\w+)\}")


class Form(NamedTuple):
    template: str
    method: str
    path: str
    names: frozenset[str]
    """With `dry_run`, where it can be asked what would happen."""


def _forms() -> Iterator[Form]:
    for file in sorted(TEMPLATES.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        folded = [(*found, "data-preview") for found in _FOLDED.findall(text)]
        for method, path, inside, more in [*((*found, "") for found in _FORM.findall(text)), *folded]:
            if path.startswith("{{"):  # the macro itself: what calls it is looked at
                continue
            said = _LEFT_OUT.sub("", inside)
            names = frozenset(_TAG.findall(said)) | frozenset(_MACRO.findall(said))
            asks = {"dry_run"} if "data-preview" in said + more else set()
            yield Form(file.name, method, path, names | asks)


FORMS = list(_forms())


def _holes(path: str) -> str:
    return _HOLE.sub("{}", path)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.template} {form.path}")
def test_a_form_says_only_what_its_route_takes(form: Form) -> None:
    routes = [
        each for each in ROUTES if each.method == form.method and _holes(f"{API}{each.path}") == _holes(form.path)
    ]
    assert len(routes) == 1, f"{form.path} is no route"
    filled = set(_HOLE.findall(form.path))
    assert filled <= form.names, "the address has a hole that no field fills"
    takes = set(Operation(routes[0]).takes)
    assert form.names - filled <= takes, f"it takes {sorted(takes)}"


def test_every_form_is_looked_at() -> None:
    """As many as there are, counted by what all of them say."""
    texts = [file.read_text(encoding="utf-8") for file in TEMPLATES.rglob("*.html")]
    plain = sum(text.count('data-act="POST ') for text in texts)
    folded = sum(text.count("{% call act(") for text in texts)
    assert len(FORMS) == plain + folded
    assert all(form.names for form in FORMS)
