"""A team's history: every change of its quota as a line, whatever happened to others left out."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from plimsoll.quota.history.log import Happened, Line, team_lines

POOL = {"cluster": "tiger", "sku": "H200"}
REQUEST = {"id": "q1", "team": "evals", "sku": "H200", "gpus": 64}
NOTICE = {"id": "evals/tiger/H200", "team": "evals", **POOL, "was": 64, "guaranteed": 40, "due": "2026-01-12T00:00:00Z"}


class Case(NamedTuple):
    """Events (kind, payload), the oldest first; what is told of `evals`, the newest first."""

    events: list[tuple[str, dict[str, Any]]]
    want_says: list[str]


CASES = {
    "the book says a number, and strikes it out": Case(
        [("assigned", {"quota": {"team": "evals", **POOL, "gpus": 64}}),
         ("assigned", {"quota": {"team": "evals", **POOL, "gpus": 0}})],
        ["nothing is assigned any more", "64 are assigned"],
    ),
    "an alignment that leaves the team as it was says nothing": Case(
        [("aligned", {**POOL, "line": 80, "guaranteed": {"evals": 40, "other": 40}, "was": {"evals": 64}}),
         ("aligned", {**POOL, "line": 72, "guaranteed": {"evals": 40, "other": 32}, "was": {"other": 40}})],
        ["40 are guaranteed, 64 were: the line is 80"],
    ),
    "what is given and what is got": Case(
        [("transferred", {**POOL, "giver": "other", "taker": "evals", "gpus": 16}),
         ("transferred", {**POOL, "giver": "evals", "taker": "other", "gpus": 16, "grant": "g1"}),
         ("transferred", {**POOL, "giver": "x", "taker": "y", "gpus": 16})],
        ["16 given to other, as they were only lent", "16 from other"],
    ),
    "a request and its answer, which names only the request": Case(
        [("requested", {"request": REQUEST}), ("requested", {"request": {**REQUEST, "id": "q2", "team": "other"}}),
         ("request_answered", {"request": "q1", "state": "denied", "answer": "no room"}),
         ("request_answered", {"request": "q2", "state": "denied"})],
        ["request q1 denied: no room", "asked for 64 more"],
    ),
    "a grant that came, and went": Case(
        [("granted", {**POOL, "team": "evals", "gpus": 16, "request": "q1"}),
         ("grant_opened", {"grant": {"team": "evals", **POOL, "gpus": 16, "until": "2026-02-01T00:00:00Z"}}),
         ("grant_ended", {**POOL, "grant": "g1", "team": "evals", "gpus": 16})],
        ["16 went back: the time was over", "16 of it go back to flex on 2026-02-01",
         "16 more, assigned and guaranteed"],
    ),
    "a notice, its answer and its end": Case(
        [("notice_given", {"notice": NOTICE}),
         ("notice_answered", {"notice": NOTICE["id"], "answer": "objected", "comment": "we train"}),
         ("notice_ended", {"notice": NOTICE["id"], "cause": "applied"})],
        ["the notice is over: applied", "objected to the notice: we train", "told: from 64 to 40 on 2026-01-12"],
    ),
    "flex called back, by the team and from it": Case(
        [("flex_called_back", {**POOL, "team": "evals", "gpus": 8, "victims": [["other", "w", 8]]}),
         ("flex_called_back", {**POOL, "team": "other", "gpus": 24, "victims": [["evals", "a", 8], ["evals", "b", 9]]}),
         ("flex_called_back", {**POOL, "team": "other", "gpus": 8, "victims": [["third", "c", 8]]})],
        ["17 of flex given back, to other", "8 that were lent are called back"],
    ),
    "what happened under an earlier name is the team's own, and what others do under it later is not": Case(
        [("assigned", {"quota": {"team": "old", **POOL, "gpus": 64}}),
         ("team_renamed", {"team": "old", "name": "evals", "stream": "team/old"}),
         ("team_renamed", {"team": "old", "name": "evals", "stream": "team/evals"}),
         ("assigned", {"quota": {"team": "old", **POOL, "gpus": 8}})],
        ["is called evals now; before, old", "64 are assigned"],
    ),
    "an event of a kind that nobody tells of": Case([("pushed", {"cluster": "tiger"})], []),
}  # fmt: skip


def lines_of(case: Case) -> list[Line]:
    events = [
        Happened(number, "2026-01-05T11:00:00Z", "ada", f"quota.{kind}", "why", payload)
        for number, (kind, payload) in enumerate(case.events, 1)
    ]
    return team_lines("evals", events)


@pytest.mark.parametrize("sentence", CASES)
def test_lines(sentence: str) -> None:
    assert [line.says for line in lines_of(CASES[sentence])] == CASES[sentence].want_says


def test_a_line_says_who_where_and_why() -> None:
    line = lines_of(CASES["an alignment that leaves the team as it was says nothing"])[0]
    assert line == Line(1, "2026-01-05T11:00:00Z", "ada", "quota.aligned", "tiger", "H200", line.says, "why", None, 40)


def test_a_notice_of_a_team_with_strokes_in_its_name_is_of_its_pool() -> None:
    given = ("quota.notice_given", {"notice": {**NOTICE, "id": "a/b/tiger/H200", "team": "a/b"}})
    ended = ("quota.notice_ended", {"notice": "a/b/tiger/H200", "cause": "applied"})
    events = [Happened(1, "2026-01-05T11:00:00Z", "ada", kind, "", payload) for kind, payload in (given, ended)]
    assert [(line.cluster, line.sku) for line in team_lines("a/b", events)] == [("tiger", "H200")] * 2
