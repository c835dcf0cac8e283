"""The Prometheus client on a real server that scrapes an exporter of ours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import PlimsollError, Unavailable, UsageError
from tests.support.exporter import (
    DOUBLE_BIT_ERRORS,
    GPU_TEMPERATURE,
    NODE_TIME,
    ROW_REMAP_FAILURE,
    XID_ERRORS,
    Exporter,
    gpu_labels,
)
from tests.support.prometheus import PREFIX, PrivatePrometheus
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("prometheus")


@pytest.fixture
def server(private_prometheus: PrivatePrometheus) -> Iterator[PrivatePrometheus]:
    """The server; a test may set what it likes."""
    private_prometheus.settle()
    yield private_prometheus
    private_prometheus.exporter.clear()
    private_prometheus.exporter.is_failing = False


@pytest.fixture
def exporter(server: PrivatePrometheus) -> Exporter:
    return server.exporter


@pytest.fixture
def client(server: PrivatePrometheus) -> Prometheus:
    return server.client()


def test_the_gpus_with_an_error_are_found(server: PrivatePrometheus, exporter: Exporter) -> None:
    for host in ("n001", "n002"):
        for gpu in range(8):
            exporter.set(XID_ERRORS, gpu_labels(host, gpu), 79 if (host, gpu) == ("n002", 3) else 0)
    (sample,) = server.wait_for(f"{XID_ERRORS} > 0", count=1).samples
    assert sample.value == 79
    assert sample.labels["Hostname"] == "n002"
    assert sample.labels["gpu"] == "3"
    assert sample.labels["UUID"] == "GPU-n002-3"
    assert sample.labels["modelName"] == "NVIDIA H100 80GB HBM3"
    assert sample.labels["cluster"] == "tiger"
    assert abs(sample.at - datetime.now(UTC)) < timedelta(seconds=30)
    assert len(server.wait_for(XID_ERRORS, count=16).samples) == 16


def test_labels_with_any_text_go_through(server: PrivatePrometheus, exporter: Exporter) -> None:
    name = 'näme "quoted" \\ with\nlines 日本'
    exporter.set(ROW_REMAP_FAILURE, {"Hostname": name}, 1)
    (sample,) = server.wait_for(ROW_REMAP_FAILURE, count=1).samples
    assert sample.labels["Hostname"] == name


def test_what_is_no_number_is_counted(server: PrivatePrometheus, exporter: Exporter) -> None:
    for gpu, value in enumerate((41.5, math.nan, math.inf, -math.inf)):
        exporter.set(GPU_TEMPERATURE, gpu_labels("n001", gpu), value)
    vector = server.wait_for(GPU_TEMPERATURE, count=1)
    assert ([sample.value for sample in vector.samples], vector.nan_count) == ([41.5], 3)


def test_a_moment_in_the_past_is_asked_for(server: PrivatePrometheus, exporter: Exporter, client: Prometheus) -> None:
    labels = gpu_labels("n001", 0)
    exporter.set(DOUBLE_BIT_ERRORS, labels, 1)
    first = server.wait_for(f"{DOUBLE_BIT_ERRORS} == 1", count=1).samples[0].at
    exporter.set(DOUBLE_BIT_ERRORS, labels, 2)
    server.wait_for(f"{DOUBLE_BIT_ERRORS} == 2", count=1)
    (sample,) = client.query(DOUBLE_BIT_ERRORS, at=first).samples
    assert (sample.value, sample.at) == (1, first)
    assert client.query(DOUBLE_BIT_ERRORS, at=first - timedelta(days=1)).samples == []


def test_a_number_and_an_aggregate_have_no_labels(client: Prometheus) -> None:
    for expression, want in (("42", 42), ("count(up)", 1), ("scalar(vector(7))", 7)):
        (sample,) = client.query(expression).samples
        assert (sample.labels, sample.value) == ({}, want)


def test_nothing_is_an_empty_vector(client: Prometheus) -> None:
    vector = client.query("no_such_metric")
    assert (vector.samples, vector.nan_count, vector.warnings) == ([], 0, ())


def test_an_exporter_that_fails_is_down(server: PrivatePrometheus, exporter: Exporter, client: Prometheus) -> None:
    exporter.set(NODE_TIME, {"Hostname": "n001"}, 1_767_610_800)
    server.wait_for(NODE_TIME, count=1)
    exporter.is_failing = True
    wait_until(lambda: client.query("up").samples[0].value == 0, what="the target is down")
    wait_until(lambda: client.query(NODE_TIME).samples == [], what="its series have ended")


BAD_QUERIES = {
    "up{": "parse error",
    "rate(up)": "expected type range vector",
    "up[5m]": "answered with a matrix",
    '"words"': "answered with a string",
    "label_replace(up, '1', '', '', '')": "invalid destination label name",
}


@pytest.mark.parametrize(("expression", "want_words"), BAD_QUERIES.items())
def test_a_wrong_query_is_said_in_the_servers_words(expression: str, want_words: str, client: Prometheus) -> None:
    with pytest.raises(UsageError) as caught:
        client.query(expression)
    assert caught.value.code == "prometheus_bad_query"
    assert want_words in str(caught.value)
    assert client.where in str(caught.value)


def test_a_query_over_the_servers_limit_is_too_much(server: PrivatePrometheus, client: Prometheus) -> None:
    # The server loads at most 50,000 samples, and this asks for 300,000.
    with pytest.raises(PlimsollError) as caught:
        client.query("sum_over_time(vector(1)[300000s:1s])")
    assert caught.value.code == "prometheus_too_much"
    assert "too many samples" in str(caught.value)


def test_a_query_that_takes_too_long_is_ended_by_the_server_or_by_us(server: PrivatePrometheus) -> None:
    client = Prometheus(server.url, timeout_seconds=0.001)
    with pytest.raises(Unavailable) as caught:
        client.query("sum_over_time(vector(1)[40000s:1s])")
    # Where the machine is busy the server may find first that it is too much.
    assert caught.value.code in ("prometheus_unavailable", "prometheus_too_much")


def test_the_path_prefix_is_needed(server: PrivatePrometheus) -> None:
    with pytest.raises(Unavailable) as caught:
        Prometheus(server.url.removesuffix(PREFIX)).query("up")
    assert caught.value.code == "prometheus_bad_answer"
    assert "HTTP 404" in str(caught.value)
