"""Health and a real Prometheus: the queries of the default policy on what the DCGM and node exporters serve."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import PlimsollError, Refused, Unavailable
from plimsoll.health.checks import run_checks
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.feeds import Fed, observe_prometheus
from plimsoll.health.policy import default_policy
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.exporter import (
    DOUBLE_BIT_ERRORS,
    GPU_TEMPERATURE,
    NODE_TIME,
    ROW_REMAP_FAILURE,
    XID_ERRORS,
    Exporter,
    gpu_labels,
)
from tests.support.fleets import nodes, row, write_fleet
from tests.support.health import Ward
from tests.support.inside import plimsoll
from tests.support.parts import missing_part
from tests.support.prometheus import PrivatePrometheus
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("prometheus")

HOSTS = ("n1", "n2", "n3", "n4")
READ_ONLY = "node_filesystem_readonly"
# Here one exporter serves all nodes, so `up` can't tell them apart; a metric takes its place.
NODE_UP = "node_exporter_up"
POLICY = DEFAULT_POLICY.replace("""'up{job="node"}'""", NODE_UP)


class Watched(Ward):
    """Four nodes that a Prometheus watches, at its time: real, so that `wait` runs ahead of it."""

    def __init__(self, server: PrivatePrometheus, *, policy: str = POLICY) -> None:
        super().__init__(4, policy=policy)
        self.now = datetime.now(UTC)
        self.server, self.exporter = server, server.exporter
        for host in HOSTS:
            self.serve(host)
        server.settle()

    def serve(self, host: str, *, instance: str = "") -> None:
        """A node with two GPUs and nothing wrong."""
        for gpu in range(2):
            labels = gpu_labels(host, gpu)
            self.exporter.set(XID_ERRORS, labels, 0)
            self.exporter.set(DOUBLE_BIT_ERRORS, labels, 0)
            self.exporter.set(ROW_REMAP_FAILURE, labels, 0)
            self.exporter.set(GPU_TEMPERATURE, labels, 61)
        there = {"exported_instance": instance or f"{host}:9100"}
        self.exporter.set(NODE_UP, there, 1)

    def scraped(self, expression: str, count: int) -> None:
        self.server.wait_for(expression, count=count)

    def look_there(self, client: Prometheus | None = None) -> Fed:
        """What Prometheus says; the time runs on so that its samples are never in the future."""
        self.now = max(self.now, datetime.now(UTC))
        return observe_prometheus(self.keeper, client or self.server.client(), feed="prometheus", actor="feeder")

    def heat(self, host: str, degrees: float) -> None:
        self.exporter.set(GPU_TEMPERATURE, gpu_labels(host, 1), degrees)
        self.scraped(f'{GPU_TEMPERATURE}{{Hostname="{host}"}} == {degrees}', 1)

    def head(self) -> object:
        return self.keeper.ledger.head()


@pytest.fixture
def ward(private_prometheus: PrivatePrometheus) -> Iterator[Watched]:
    with Watched(
        private_prometheus, policy=POLICY.replace("node_label: instance", "node_label: exported_instance")
    ) as it:
        yield it  # type: ignore[misc]
    private_prometheus.exporter.clear()
    private_prometheus.exporter.is_failing = False


def test_nothing_wrong_is_healthy_and_says_so_once(ward: Watched) -> None:
    fed = ward.look_there()
    assert {look[:2] for look in ward.look_at_all().values()} == {("healthy", "in_service")}
    assert (fed.observed.outcome.moved, fed.notes) == ([], [])
    head = ward.head()
    ward.look_there()
    assert ward.head() == head


def test_an_xid_that_appears_is_a_quarantine(ward: Watched) -> None:
    ward.look_there()
    ward.exporter.set(XID_ERRORS, gpu_labels("n2", 1), 79)
    ward.scraped(f"{XID_ERRORS} == 79", 1)
    (moved,) = ward.look_there().observed.outcome.moved
    assert (moved.node, moved.service, moved.why) == ("n2", "quarantined", "xid 79")
    assert ward.holds("n2").keys() == {"plimsoll:xid 79"}
    # The gauge keeps the last code: it is no new one at the next look.
    head = ward.head()
    ward.look_there()
    assert ward.head() == head


def test_gpus_that_nobody_looks_at_any_more_are_not_healthy(ward: Watched) -> None:
    """The exporter of the GPUs is gone, that of the nodes still answers: half an answer is none."""
    ward.look_there()
    ward.exporter.clear()
    for host in HOSTS:
        ward.exporter.set(NODE_UP, {"exported_instance": f"{host}:9100"}, 1)
    ward.server.settle()
    head = ward.head()
    with pytest.raises(Unavailable) as caught:
        ward.look_there()
    assert caught.value.code == "feed_partial"
    assert "no sample any more for ecc double-bit, ecc row-remap-failure, thermal gpu" in caught.value.message
    assert ward.head() == head
    ward.wait(16)
    assert ward.sweep().silent == ["prometheus"]
    assert {look[:2] for look in ward.look_at_all().values()} == {("unknown", "in_service")}


def test_an_xid_that_is_not_listed_leads_to_nothing(ward: Watched) -> None:
    ward.exporter.set(XID_ERRORS, gpu_labels("n2", 1), 31)
    ward.scraped(f"{XID_ERRORS} == 31", 1)
    fed = ward.look_there()
    assert (fed.observed.ignored, ward.look("n2")[:2]) == (1, ("healthy", "in_service"))


def test_a_double_bit_error_drains_and_a_failed_remap_is_the_providers(ward: Watched) -> None:
    ward.exporter.set(DOUBLE_BIT_ERRORS, gpu_labels("n1", 0), 2)
    ward.exporter.set(ROW_REMAP_FAILURE, gpu_labels("n3", 1), 1)
    ward.scraped(f"{DOUBLE_BIT_ERRORS} == 2 or {ROW_REMAP_FAILURE} == 1", 2)
    ward.look_there()
    assert ward.look("n1")[:3] == ("unhealthy", "draining", "ours")
    assert ward.facts("n1").why == "ecc double-bit>=1 (2)"
    assert ward.look("n3")[:3] == ("unhealthy", "repair", "provider")


def test_a_hot_node_is_degraded_and_comes_back_by_itself(ward: Watched) -> None:
    ward.heat("n4", 93)
    for want in ("healthy", "healthy", "degraded"):  # the third within 30 minutes counts
        ward.look_there()
        assert ward.look("n4")[:2] == (want, "in_service")
        ward.wait(0.1)
    ward.heat("n4", 70)
    ward.look_there()
    assert ward.look("n4")[:2] == ("healthy", "in_service")


def test_a_node_that_is_not_up_is_out_after_five_minutes(ward: Watched) -> None:
    ward.look_there()
    ward.exporter.set(NODE_UP, {"exported_instance": "n1:9100"}, 0)
    ward.scraped(f"{NODE_UP} == 0", 1)
    ward.look_there()
    ward.wait(4)
    ward.sweep()
    assert ward.service("n1") == "in_service"
    ward.wait(2)
    ward.sweep()
    assert (ward.service("n1"), ward.facts("n1").why) == ("quarantined", "heartbeat node-exporter")
    assert {ward.service(name) for name in HOSTS[1:]} == {"in_service"}


def test_a_node_that_vanishes_from_the_answer_has_lost_its_heartbeat(ward: Watched) -> None:
    ward.look_there()
    ward.exporter.clear()
    for host in HOSTS[:3]:
        ward.serve(host)
    ward.scraped(XID_ERRORS, 6)
    ward.look_there()
    ward.wait(6)
    ward.look_there()
    assert (ward.service("n4"), ward.facts("n4").why) == ("quarantined", "heartbeat prometheus: not seen any more")
    assert {ward.service(name) for name in HOSTS[:3]} == {"in_service"}


def test_a_target_that_is_gone_is_silence_and_not_a_fault_of_every_node(ward: Watched) -> None:
    ward.look_there()
    ward.exporter.is_failing = True
    wait_until(lambda: ward.server.client().query(XID_ERRORS).samples == [], what="its series have ended")
    head = ward.head()
    with pytest.raises(Refused) as caught:
        ward.look_there()
    assert caught.value.code == "feed_empty"
    assert "answered, but with no sample of any node" in caught.value.message
    assert ward.head() == head
    ward.wait(16)
    assert ward.sweep().silent == ["prometheus"]
    assert {look[:2] for look in ward.look_at_all().values()} == {("unknown", "in_service")}
    ward.exporter.is_failing = False
    ward.scraped(XID_ERRORS, 8)
    ward.look_there()
    assert {look.health for look in ward.look_at_all().values()} == {"healthy"}


def test_what_is_no_number_is_left_out_and_said(ward: Watched) -> None:
    ward.exporter.set(GPU_TEMPERATURE, gpu_labels("n2", 0), math.nan)
    ward.exporter.set(GPU_TEMPERATURE, gpu_labels("n2", 1), math.nan)
    wait_until(lambda: ward.server.client().query(GPU_TEMPERATURE).nan_count == 2, what="it is scraped")
    fed = ward.look_there()
    assert fed.notes == ["thermal gpu: 1 samples were no number and were left out"]
    assert ward.look("n2")[:2] == ("healthy", "in_service")


def test_a_name_with_a_port_or_a_domain_is_the_nodes_and_others_are_named(ward: Watched) -> None:
    ward.exporter.clear()
    for host in ("n1.tiger.example:9400", "n2.tiger.example", "n3:9400", "n4", "login-1", "n9:9400"):
        ward.serve(host, instance=f"{host}:9100" if ":" not in host else host)
    ward.exporter.set(XID_ERRORS, gpu_labels("n1.tiger.example:9400", 0), 79)
    ward.scraped(f"{XID_ERRORS} == 79", 1)
    ward.scraped(XID_ERRORS, 12)
    fed = ward.look_there()
    assert ward.service("n1") == "quarantined"
    assert set(ward.health.covers) == set(HOSTS)
    assert fed.notes == ["2 names are no nodes of the fleet: login-1, n9"]


def test_a_query_lets_a_validating_node_in(private_prometheus: PrivatePrometheus) -> None:
    check = """- {check: bandwidth, query: 'min(nccl_bandwidth{node="{node}"})', at_least: 350}"""
    policy = POLICY.replace("  - {check: accepted, by: manual}", f"  {check}").replace("for: 10m", "for: 0s")
    with Ward(3, policy=policy) as ward:
        ward.set("quarantined", "n1", "n2", "n3")
        ward.set("validating", "n1", "n2", "n3")
        for node, value in (("n1", 371.5), ("n2", 120.0)):
            private_prometheus.exporter.set("nccl_bandwidth", {"node": node}, value)
        private_prometheus.wait_for("nccl_bandwidth", count=2)
        answers = run_checks(ward.keeper, actor="sweeper", prometheus=private_prometheus.client())
        assert [(each.node, each.is_passed, each.detail) for each in answers] == [
            ("n1", True, "371.5, at least 350 is needed"),
            ("n2", False, "120, at least 350 is needed"),
            ("n3", None, "no answer: no samples"),
        ]
        assert {name: ward.service(name) for name in HOSTS[:3]} == {
            "n1": "in_service", "n2": "quarantined", "n3": "validating",
        }  # fmt: skip
        assert ward.facts("n2").why == "validation: bandwidth failed, 120, at least 350 is needed"
        gone = Prometheus("http://127.0.0.1:1", timeout_seconds=1)
        (answer,) = run_checks(ward.keeper, actor="sweeper", prometheus=gone)
        assert answer.is_passed is None
        assert answer.detail.startswith("no answer: http://127.0.0.1:1 did not answer")
    private_prometheus.exporter.clear()


NODE_EXPORTERS = """\
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: node
    static_configs:
"""
TARGET = """\
      - targets: ["{target}"]
        labels: {{instance: "{name}:9100"}}
"""


class NodeExporters:
    """A server that scrapes a node exporter on each of two nodes, as the default policy expects it."""

    def __init__(self, server: PrivatePrometheus) -> None:
        self.server = server
        self.exporters = {"n1": server.exporter, "n2": Exporter()}
        for exporter in self.exporters.values():
            exporter.set(READ_ONLY, {"mountpoint": "/"}, 0)
        self.scrape("n1", "n2")

    def scrape(self, *names: str) -> None:
        """From these nodes only; a server that runs reads it again."""
        targets = [TARGET.format(target=self.exporters[name].target, name=name) for name in names]
        text = NODE_EXPORTERS.format() + "".join(targets)
        (self.server.folder / "prometheus.yml").write_text(text)
        self.server.reload()

    def close(self) -> None:
        self.exporters["n2"].close()
        self.server.stop()


@pytest.fixture
def node_exporters() -> Iterator[NodeExporters]:
    both = NodeExporters(PrivatePrometheus(shutil.which("prometheus") or missing_part("Prometheus")))
    try:
        both.server.start()
        both.server.wait_for('up{job="node"} == 1', count=2)
        yield both
    finally:
        both.close()


def test_the_default_heartbeat_is_up_and_a_disk_that_is_read_only_a_failed_check(node_exporters: NodeExporters) -> None:
    both, server = node_exporters, node_exporters.server
    with Ward(2, policy=DEFAULT_POLICY) as ward:

        def look() -> None:
            ward.now = max(ward.now, datetime.now(UTC))
            observe_prometheus(ward.keeper, server.client(), feed="prometheus", actor="feeder")

        look()
        assert ward.health.covers.keys() == {"n1", "n2"}
        both.exporters["n2"].is_failing = True
        both.exporters["n1"].set(READ_ONLY, {"mountpoint": "/"}, 1)
        server.wait_for('up{job="node"} == 0', count=1)
        server.wait_for(f"{READ_ONLY} == 1", count=1)
        look()
        assert (ward.service("n1"), ward.service("n2")) == ("in_service", "in_service")
        look()  # the second time within half an hour
        assert (ward.service("n1"), ward.facts("n1").why) == ("quarantined", "check root-writable")
        ward.wait(6)
        ward.sweep()
        assert (ward.service("n2"), ward.facts("n2").why) == ("quarantined", "heartbeat node-exporter")


def test_a_target_that_is_taken_away_is_a_lost_heartbeat(node_exporters: NodeExporters) -> None:
    both, server = node_exporters, node_exporters.server
    with Ward(2, policy=DEFAULT_POLICY) as ward:
        ward.now = datetime.now(UTC)
        observe_prometheus(ward.keeper, server.client(), feed="prometheus", actor="feeder")
        both.scrape("n1")
        server.wait_for('up{job="node"}', count=1)
        for wait in (0, 6):
            ward.now = max(ward.now, datetime.now(UTC))
            ward.wait(wait)
            observe_prometheus(ward.keeper, server.client(), feed="prometheus", actor="feeder")
        assert (ward.service("n2"), ward.facts("n2").why) == ("quarantined", "heartbeat prometheus: not seen any more")
        assert ward.service("n1") == "in_service"


def _vector(*rows: str, more: str = "") -> bytes:
    result = ",".join(rows)
    return http_answer(f'{{"status":"success"{more},"data":{{"resultType":"vector","result":[{result}]}}}}')


def _row(host: str) -> str:
    return f'{{"metric":{{"Hostname":"{host}","instance":"{host}"}},"value":[{datetime.now(UTC).timestamp()},"79"]}}'


def _hang(conversation: Conversation) -> None:
    conversation.pause(20)


def _huge(conversation: Conversation) -> None:
    rows = [_row("n1")] * 250_001
    conversation.say(_vector(*rows))


def _partial(conversation: Conversation) -> None:
    conversation.say(_vector(_row("n1"), more=',"warnings":["remote_read: store-7 did not answer"]'))


BAD_SERVERS: dict[str, tuple[Callable[[Conversation], None], str, str]] = {
    "it hangs": (_hang, "prometheus_unavailable", "did not answer"),
    "it says too much": (_huge, "prometheus_too_much", "at most 250,000 are taken"),
    "it says a part only": (
        _partial,
        "feed_partial",
        "a part only: remote_read: store-7 did not answer; nothing was taken",
    ),
}


@pytest.mark.parametrize("sentence", BAD_SERVERS)
def test_an_answer_that_is_not_whole_changes_nothing(sentence: str, sqlite_dsn: str, tmp_path: Path) -> None:
    speak, want_code, want = BAD_SERVERS[sentence]
    assert plimsoll("fleet", "import", write_fleet(tmp_path / "fleet"), db=sqlite_dsn).code == 0
    head = plimsoll("audit", "head", db=sqlite_dsn).out
    with BadWeb(speak) as web:
        ran = plimsoll("health", "observe", "prometheus", web.url, "--timeout", "3", "-o", "json", db=sqlite_dsn)
    assert (ran.code, ran.out) == (1, "")
    assert f'"code":"{want_code}"' in ran.err
    assert want in ran.err
    assert plimsoll("audit", "head", db=sqlite_dsn).out == head
    assert plimsoll("health", "show", "-o", "json", db=sqlite_dsn).json()["present"]["feeds"] == []


def test_a_remark_about_the_words_of_a_query_is_passed_on() -> None:
    remark = "PromQL info: metric might not be a counter"

    def speak(conversation: Conversation) -> None:
        conversation.say(_vector(_row("n1"), more=f',"warnings":["{remark}"]'))

    with Ward(1) as ward, BadWeb(speak) as web:
        ward.now = datetime.now(UTC)
        with pytest.raises(PlimsollError) as caught:  # the tests' own policy asks for nothing
            observe_prometheus(ward.keeper, Prometheus(web.url), feed="prometheus", actor="feeder")
        assert caught.value.code == "feed_empty"
    with Ward(1, policy=DEFAULT_POLICY) as ward, BadWeb(speak) as web:
        ward.now = datetime.now(UTC)
        fed = observe_prometheus(ward.keeper, Prometheus(web.url), feed="prometheus", actor="feeder")
        assert fed.notes[0] == f"xid: {remark}"
        assert "plimsoll:xid 79" in ward.holds("n1")


def test_the_command_asks_the_default_queries(
    private_prometheus: PrivatePrometheus, sqlite_dsn: str, tmp_path: Path
) -> None:
    exporter = private_prometheus.exporter
    rows = [*nodes(2), row("nodes", node="n3")]
    assert plimsoll("fleet", "import", write_fleet(tmp_path / "fleet", nodes=rows), db=sqlite_dsn).code == 0
    for host in ("n1", "n2", "n3"):
        exporter.set(XID_ERRORS, gpu_labels(host, 0), 79 if host == "n3" else 0)
        exporter.set(GPU_TEMPERATURE, gpu_labels(host, 0), 60)
        exporter.set(NODE_TIME, {"host": host}, 1)
    private_prometheus.wait_for(GPU_TEMPERATURE, count=3)
    private_prometheus.wait_for(f"{XID_ERRORS} == 79", count=1)
    words = ["health", "observe", "prometheus", private_prometheus.url]
    head = plimsoll("audit", "head", db=sqlite_dsn).out
    would = plimsoll(*words, "--dry-run", "-o", "json", db=sqlite_dsn).json()
    assert plimsoll("audit", "head", db=sqlite_dsn).out == head
    assert [each["node"] for each in would["observed"]["outcome"]["moved"]] == ["n3"]
    ran = plimsoll(*words, db=sqlite_dsn)
    assert ran.code == 0, ran.err
    assert "n3    in_service  quarantined  unhealthy  xid 79" in ran.out
    exporter.clear()
    assert {query.kind.value for query in default_policy().queries} == {"xid", "ecc", "thermal", "heartbeat", "check"}
