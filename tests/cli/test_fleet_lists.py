"""Lists that pages are made of, as a terminal shows them: clusters, the map of nodes, the course of health."""

from __future__ import annotations

from tests.support.inside import called


def test_clusters_are_listed_with_where_they_are_and_what_is_in_them(book: str) -> None:
    found = called("fleet", "clusters", "--db", book, "-o", "json").json()["clusters"]
    assert [(row["cluster"], row["area"], row["phase"], row["skus"], row["nodes"]) for row in found] == [
        ("lion", "eu", "provisioned", ["GB200"], 2),
        ("tiger", "us", "production", ["H200"], 4),
    ]
    lines = called("fleet", "clusters", "sku=H200", "--db", book, "-o", "csv").out.splitlines()
    assert lines == [
        "cluster,region,area,colo,provider,purpose,phase,islands,nodes,nodes_in_service,skus",
        "tiger,us-north,us,colo-1,acme,research,production,1,4,2,H200",
    ]


def test_clusters_can_be_found_by_a_label(book: str) -> None:
    assert len(called("fleet", "clusters", "serves=api", "--db", book, "-o", "json").json()["clusters"]) == 1
    said = called("fleet", "clusters", "colour=red", "--db", book)
    assert (said.code, "there is no field 'colour'" in said.err) == (2, True)


def test_the_map_as_a_file_has_one_row_a_node(book: str) -> None:
    lines = called("fleet", "map", "cluster=tiger", "--db", book, "-o", "csv").out.splitlines()
    assert lines[0].startswith("node,island,cluster,sku,gpus,service,health,reason,since,expected_return,workloads")
    assert [line.split(",")[0] for line in lines[1:]] == ["t1", "t2", "t3", "t4"]
    assert '"xid 79, again"' in lines[4]


def test_the_map_in_columns_says_each_word_once(book: str) -> None:
    found = called("fleet", "map", "--db", book, "-o", "json").json()
    services = [found["services"][place] for place in found["nodes"]["service"]]
    is_out = {name: word for name, word in zip(found["nodes"]["node"], services, strict=True) if word != "in_service"}
    assert is_out == {"t1": "draining", "t4": "repair"}
    assert found["reasons"][0] == ""
    assert found["islands"][1]["work"] == [[0, 16]]


def test_the_course_of_health_names_what_fell_most(book: str) -> None:
    said = called("quota", "history", "--days", "365", "--db", book)
    assert said.code == 0
    assert "GPUs healthy" in said.out.splitlines()[0]
    document = called("quota", "history", "tiger", "--days", "365", "--db", book, "-o", "json").json()
    assert [(pool["cluster"], pool["healthy"], pool["total"]) for pool in document["pools"]] == [("tiger", 16, 32)]
