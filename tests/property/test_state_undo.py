"""Never a trace of what was only tried: any changes in any nesting of what-ifs are undone exactly."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.state.state import State
from tests.support.ledgers import KINDS, Notes

Step = tuple[str, Any]
Model = dict[str, tuple[str, ...]]

_pages = st.sampled_from("abcd")
_puts = st.tuples(st.just("put"), st.tuples(_pages, st.text("xyz", max_size=2)))
_drops = st.tuples(st.just("drop"), _pages)


def _nested(steps: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    inside = st.lists(steps, max_size=6)
    return st.tuples(st.sampled_from(["try", "try and fail", "fork"]), inside)


_steps: st.SearchStrategy[list[Step]] = st.lists(st.recursive(_puts | _drops, _nested, max_leaves=30), max_size=12)


class Failed(Exception):
    pass


def _walk(state: State, model: Model, steps: list[Step]) -> None:
    """Do the steps to the state and, in the plainest way, to a dictionary; they must stay equal."""
    table = state.of(Notes).pages
    for what, detail in steps:
        if what == "put":
            page, text = detail
            table.put(page, (text,))
            model[page] = (text,)
        elif what == "drop":
            if model.pop(detail, None) is not None:
                table.drop(detail)
        elif what == "fork":
            _walk(state.fork(), dict(model), detail)
        else:
            _try(state, model, detail, is_failure=what == "try and fail")
        assert table == model


def _try(state: State, model: Model, steps: list[Step], *, is_failure: bool) -> None:
    revision = state.revision
    try:
        with state.what_if():
            state.revision += 1
            _walk(state, dict(model), steps)
            if is_failure:
                raise Failed
    except Failed:
        pass
    assert state.revision == revision


@given(_steps)
def test_never_a_trace_of_what_was_tried(steps: list[Step]) -> None:
    state, model = State(KINDS), dict[str, tuple[str, ...]]()
    _walk(state, model, steps)
    plain = State(KINDS)
    for page, lines in model.items():
        plain.of(Notes).pages.put(page, lines)
    assert state.dump() == plain.dump()
