"""Kueue's objects over the API of Kubernetes: applied under our name, drift with its owner, faults of the server."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.connect.kubeconfig import access, read_kubeconfig, read_secret
from plimsoll.connect.kueue import ATTEMPTS_MAX, KueueApi
from plimsoll.errors import NotFound, PlimsollError, Refused, Unavailable, UsageError
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.model import Quota
from plimsoll.quota.outlets.kueue import KueueStyle
from plimsoll.quota.outlets.kueue_outlet import KueueOutlet
from plimsoll.quota.outlets.push import OnDrift, Pushed, Result, push
from tests.support.imports import Importer
from tests.support.inside import Said, plimsoll
from tests.support.kube_api import Key, KubeApi, Problem
from tests.support.promises import Cut, align, aligned_fleet, guaranteed, pushes
from tests.support.tls import make_certificate, server_context

TEAMS = {"evals": 16, "vision": 48}
OBJECTS = 1 + 1 + 4 + 1 + 2 + 2


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi(namespaces=("default", "evals", "vision")) as server:
        yield server


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return aligned_fleet(tmp_path, TEAMS)


def client(api: KubeApi, **options: Any) -> KueueApi:
    return KueueApi(access(url=api.url, **options), timeout_seconds=5, sleep=lambda _seconds: None)


def outlet(api: KubeApi, *, cluster: str = "tiger") -> KueueOutlet:
    return KueueOutlet(client(api), cluster=cluster, style=KueueStyle())


def tell(importer: Importer, api: KubeApi, *, on_drift: OnDrift = OnDrift.SHOW) -> Pushed:
    return push(importer.keeper, outlet(api), "tiger", actor="tester", on_drift=on_drift)


def quota(api: KubeApi, queue: str) -> dict[str, Any]:
    spec = api.get("clusterqueues", queue)["spec"]
    resource: dict[str, Any] = spec["resourceGroups"][0]["flavors"][0]["resources"][0]
    return resource


def set_quota(**values: str) -> Any:
    def change(content: dict[str, Any]) -> None:
        content["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0].update(values)

    return change


def test_a_push_makes_all_objects_and_a_second_writes_none(importer: Importer, api: KubeApi) -> None:
    assert tell(importer, api).is_complete
    assert len(api.objects) == OBJECTS
    assert quota(api, "vision.h200") == {"name": "nvidia.com/gpu", "nominalQuota": "48", "lendingLimit": "48"}
    managers = {
        entry["manager"] for kept in api.objects.values() for entry in kept.shown()["metadata"]["managedFields"]
    }
    assert managers == {"plimsoll"}
    writes = len(api.writes)
    assert not tell(importer, api).outcomes
    assert len(api.writes) == writes
    assert len(pushes(importer)) == 1


def test_lists_are_read_to_their_end(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    api.page_objects_max = 1
    assert not tell(importer, api).outcomes


def test_a_moved_promise_changes_two_queues_the_lower_first(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    api.writes.clear()
    align(importer, {"evals": 40, "vision": 24})
    assert tell(importer, api).is_complete
    assert api.writes == ["PATCH clusterqueues/vision.h200", "PATCH clusterqueues/evals.h200"]
    assert quota(api, "vision.h200")["lendingLimit"] == "24"


def test_a_guarantee_of_thousands_is_no_drift(tmp_path: Path, api: KubeApi) -> None:
    """Kueue itself would write 2000 as 2k: we do so from the beginning."""
    importer = aligned_fleet(tmp_path, {"vision": 2000}, node_count=250)
    tell(importer, api)
    assert quota(api, "vision.h200")["nominalQuota"] == "2k"
    assert not tell(importer, api).outcomes


def test_a_hand_on_a_queue_is_drift_with_its_owner(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    api.edit("clusterqueues", "vision.h200", set_quota(nominalQuota="56"), manager="kubectl-edit")
    pushed = tell(importer, api)
    (left,) = pushed.with_result(Result.LEFT)
    assert (left.step.name, left.owner) == ("ClusterQueue/vision.h200", "kubectl-edit")
    assert quota(api, "vision.h200")["nominalQuota"] == "56"


def test_drift_is_put_back_by_force_and_stays_ours(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    api.edit("clusterqueues", "vision.h200", set_quota(nominalQuota="56"))
    assert tell(importer, api, on_drift=OnDrift.PUT_BACK).is_complete
    assert quota(api, "vision.h200")["nominalQuota"] == "48"
    align(importer, {"evals": 16, "vision": 40})
    assert tell(importer, api).is_complete
    assert quota(api, "vision.h200")["nominalQuota"] == "40"


def test_a_higher_guarantee_is_adopted_with_all_that_belongs_to_it(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    api.edit("clusterqueues", "vision.h200", set_quota(nominalQuota="56"))  # lending limit and weight are still 48
    assert tell(importer, api, on_drift=OnDrift.ADOPT).is_complete
    assert guaranteed(importer) == {"evals": 16, "vision": 56}
    assert quota(api, "vision.h200")["lendingLimit"] == "56"
    assert api.get("clusterqueues", "vision.h200")["spec"]["fairSharing"] == {"weight": "56"}
    assert not tell(importer, api).outcomes


def test_flex_set_by_hand_can_not_be_adopted(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    api.edit("cohorts", "h200", set_quota(nominalQuota="800"))
    pushed = tell(importer, api, on_drift=OnDrift.ADOPT)
    assert not pushed.is_complete
    (adoption,) = pushed.adoptions
    assert "flex is not promised to anybody" in adoption.problem


def test_a_field_that_another_manager_also_holds_is_not_taken_unasked(importer: Importer, api: KubeApi) -> None:
    """Somebody applied the same values: no difference to see, but the server knows whose field it is, too."""
    tell(importer, api)
    content = {key: api.get("clusterqueues", "vision.h200")[key] for key in ("apiVersion", "kind", "spec")}
    kept = api.objects["clusterqueues", "", "vision.h200"]
    kept.apply({**content, "metadata": {"name": "vision.h200"}}, "argocd", is_forced=True)
    align(importer, {"evals": 16, "vision": 40})
    pushed = tell(importer, api)
    (left,) = pushed.with_result(Result.LEFT)
    assert left.owner == "argocd"
    assert ".spec.resourceGroups" in left.problem
    assert quota(api, "vision.h200")["nominalQuota"] == "48"
    assert tell(importer, api, on_drift=OnDrift.PUT_BACK).is_complete
    assert quota(api, "vision.h200")["nominalQuota"] == "40"


def test_left_overs_of_ours_are_deleted_and_strangers_stay(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    stranger = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "theirs", "labels": {"app.kubernetes.io/managed-by": "helm"}},
        "spec": {"cohortName": "h200"},
    }
    client(api).apply(stranger, is_forced=False)
    importer.keeper.commit([Draft(QuotaAssigned(Quota("evals", "tiger", "H200", 0)))], actor="tester", read_at=None)
    assert tell(importer, api).is_complete
    names = {key[2] for key in api.objects if key[0] == "clusterqueues"}
    assert names == {"vision.h200", "theirs"}
    assert ("localqueues", "evals", "h200") not in api.objects


def test_the_kubernetes_of_another_cluster_is_refused(importer: Importer, api: KubeApi) -> None:
    tell(importer, api)
    with pytest.raises(Refused) as caught:
        outlet(api, cluster="lion").read()
    assert caught.value.code == "wrong_kubernetes"
    assert caught.value.fields["found"] == "tiger"


def test_a_missing_namespace_holds_up_only_its_team(importer: Importer, api: KubeApi) -> None:
    api.namespaces.discard("evals")
    pushed = tell(importer, api)
    (refused,) = pushed.with_result(Result.REFUSED)
    assert refused.step.name == "LocalQueue/evals/h200"
    assert "kubectl create namespace evals" in refused.problem
    assert len(api.objects) == OBJECTS - 1
    api.namespaces.add("evals")
    assert tell(importer, api).is_complete


@pytest.mark.parametrize("number", [0, 3, OBJECTS - 1])
@pytest.mark.parametrize("is_after", [False, True], ids=["before the write", "after the write"])
def test_a_push_cut_at_an_object_is_completed(number: int, is_after: bool, importer: Importer, api: KubeApi) -> None:
    told = outlet(api)
    write, written = told.write, []

    def cut(step: Any) -> None:
        if is_after:
            write(step)
        written.append(step.name)
        if len(written) == number + 1:
            raise Cut
        if not is_after:
            write(step)

    told.write = cut  # type: ignore[method-assign]
    with pytest.raises(Cut):
        push(importer.keeper, told, "tiger", actor="tester")
    assert len(api.objects) == number + is_after
    align(importer, {"evals": 24, "vision": 40})
    assert tell(importer, api).is_complete
    assert len(api.objects) == OBJECTS
    assert quota(api, "vision.h200")["nominalQuota"] == "40"


def busy(code: int, times: int) -> Any:
    left = [times]

    def refuse(_method: str, _key: Key) -> None:
        if left[0]:
            left[0] -= 1
            raise Problem(code, "ServiceUnavailable", "the server is busy")

    return refuse


def test_a_busy_server_is_asked_again_and_not_for_ever(importer: Importer, api: KubeApi) -> None:
    api.on_write = busy(503, ATTEMPTS_MAX - 1)
    assert tell(importer, api).is_complete
    align(importer, {"evals": 8})
    api.on_write = busy(503, 1000)
    requests = len(api.requests)
    with pytest.raises(Unavailable) as caught:
        tell(importer, api)
    assert "HTTP 503" in caught.value.message
    assert len(api.requests) - requests == 6 + ATTEMPTS_MAX


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    way = KueueApi(access(url="http://127.0.0.1:9"), timeout_seconds=2, sleep=lambda _seconds: None)
    with pytest.raises(Unavailable) as caught:
        way.list_objects("Cohort", labels={})
    assert caught.value.code == "kubernetes_unavailable"
    assert "kubectl cluster-info" in caught.value.next_step


def test_a_wrong_token_is_said_and_never_shown(api: KubeApi) -> None:
    api.token = "right"
    with pytest.raises(Unavailable) as caught:
        client(api, token="very-secret").list_objects("Cohort", labels={})
    assert "HTTP 401" in caught.value.message
    assert "very-secret" not in repr(caught.value.__dict__) + repr(access(url=api.url, token="very-secret"))
    assert client(api, token="right\n").list_objects("Cohort", labels={}) == []


def test_what_kueue_does_not_take_is_refused_in_its_words(api: KubeApi) -> None:
    bad = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": "h200"},
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": ["gpu"],
                    "flavors": [{"name": "h", "resources": [{"name": "gpu", "nominalQuota": 1, "lendingLimit": 2}]}],
                }
            ]
        },
    }
    with pytest.raises(Refused) as caught:
        client(api).apply(bad, is_forced=False)
    assert "must be less than or equal to the nominalQuota" in caught.value.message


def test_kubernetes_without_kueue_is_said(api: KubeApi) -> None:
    def gone(_method: str, _key: Key) -> None:
        raise Problem(404, "NotFound", "the server could not find the requested resource")

    api.on_write = gone
    with pytest.raises(NotFound) as caught:
        client(api).apply({"kind": "Cohort", "metadata": {"name": "x"}}, is_forced=False)
    assert caught.value.code == "kueue_missing"


# The way there.


def kubeconfig(folder: Path, api_url: str, **user: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "other",
        "clusters": [{"name": "c", "cluster": {"server": api_url}}],
        "contexts": [{"name": "tiger", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_kubeconfig_gives_server_and_token(tmp_path: Path, api: KubeApi) -> None:
    api.token = "from-a-file"
    (tmp_path / "token").write_text("from-a-file\n")
    for user in ({"token": "from-a-file"}, {"tokenFile": "token"}):
        way = read_kubeconfig(kubeconfig(tmp_path, api.url, **user), context="tiger")
        assert KueueApi(way).list_objects("Cohort", labels={}) == []


BAD_CONFIGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a context that is not there": ({}, "lion", "has no context 'lion'; it has tiger"),
    "a command that would be run": ({"exec": {"command": "aws"}}, "tiger", "none is run from here"),
    "a token of two lines": ({"token": "a\nb"}, "tiger", "not one word"),
    "a token file that is not there": ({"tokenFile": "nowhere"}, "tiger", "No such file"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS, ids=str)
def test_bad_ways_are_refused(case: str, tmp_path: Path) -> None:
    user, context, want_words = BAD_CONFIGS[case]
    with pytest.raises(UsageError) as caught:
        read_kubeconfig(kubeconfig(tmp_path, "http://127.0.0.1:9", **user), context=context)
    assert want_words in caught.value.message


@pytest.mark.parametrize("read", [read_secret, lambda path: read_kubeconfig(path, context="tiger")])
def test_a_file_without_an_end_is_not_read_to_its_end(read: Callable[[str], Any]) -> None:
    with pytest.raises(UsageError, match="/dev/zero has more than 4,194,304 bytes"):
        read("/dev/zero")


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(UsageError) as caught:
        access(url="http://kubernetes.example:8080", token="very-secret")
    assert "unencrypted" in caught.value.message
    assert "very-secret" not in caught.value.message


@pytest.mark.parametrize("text", ["", "[1, 2]", "clusters: 7", "{", "a: b: c"])
def test_what_is_no_kubeconfig_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(PlimsollError):
        read_kubeconfig(path, context="tiger")


def test_a_certificate_authority_that_is_none_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:9")
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(b"not a certificate").decode()
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(UsageError):
        read_kubeconfig(path, context="tiger")


@pytest.mark.parametrize("has_data", [False, True], ids=["files", "data"])
def test_a_client_certificate_proves_who_we_are(has_data: bool, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = server_context(certificate, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(certificate)

    def value(name: str, file: Path) -> dict[str, str]:
        return {f"{name}-data": base64.b64encode(file.read_bytes()).decode()} if has_data else {name: file.name}

    with KubeApi(tls=tls) as api:
        path = kubeconfig(tmp_path, api.url, **value("client-certificate", certificate), **value("client-key", key))
        config = yaml.safe_load(path.read_text())
        config["clusters"][0]["cluster"] |= value("certificate-authority", certificate)
        path.write_text(yaml.safe_dump(config))
        assert KueueApi(read_kubeconfig(path, context="tiger")).list_objects("Cohort", labels={}) == []
        stranger = access(url=api.url, ca_file=str(certificate))
        with pytest.raises(Unavailable):
            KueueApi(stranger, sleep=lambda _seconds: None).list_objects("Cohort", labels={})
        with pytest.raises(Unavailable) as caught:
            KueueApi(access(url=api.url)).list_objects("Cohort", labels={})
    assert "certificate is not trusted" in caught.value.message
    assert "--ca-file" in caught.value.next_step


# The command.


@pytest.fixture
def database(tmp_path: Path) -> str:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    aligned_fleet(tmp_path, TEAMS, dsn=dsn)
    return dsn


def run(database: str, api: KubeApi, *options: str) -> Said:
    return plimsoll("quota", "push", "kubernetes", "tiger", "--url", api.url, *options, db=database)


def test_the_command_pushes_shows_drift_and_puts_it_back(database: str, api: KubeApi) -> None:
    dry = run(database, api, "--dry-run")
    assert dry.code == 0, dry.err
    assert "11 settings would change" in dry.out
    assert "48 GPUs" in dry.out
    assert not api.objects
    first = run(database, api, "-o", "json")
    assert first.code == 0, first.err
    assert first.json()["complete"]
    api.edit("clusterqueues", "vision.h200", set_quota(nominalQuota="56"), manager="kubectl-edit")
    drift = run(database, api)
    assert drift.code == 1
    assert "kubectl-edit" in drift.out
    assert "--put-back" in drift.out
    (line,) = [line for line in drift.out.splitlines() if "nominalQuota" in line]
    assert line.split()[:4] == [
        "ClusterQueue/vision.h200",
        "nominalQuota",
        "56",
        "48",
    ]
    assert run(database, api, "--put-back", "--adopt").code == 2
    assert run(database, api, "--put-back").code == 0
    again = run(database, api)
    assert again.code == 0
    assert "0 settings changed, 11 as they should be" in again.out


def test_render_prints_what_push_would_apply(database: str, api: KubeApi) -> None:
    run(database, api)
    rendered = plimsoll("quota", "render", "kueue", "tiger", db=database)
    assert rendered.code == 0, rendered.err
    documents = list(yaml.safe_load_all(rendered.out))
    assert len(documents) == OBJECTS
    for content in documents:
        client(api).apply(content, is_forced=False)
    assert run(database, api, "--dry-run", "-o", "json").json()["steps"] == []
    as_json = plimsoll("quota", "render", "kueue", "tiger", "-o", "json", db=database).json()
    assert as_json["items"] == documents


def test_where_kubernetes_is_must_be_said(database: str) -> None:
    ran = plimsoll("quota", "push", "kubernetes", "tiger", db=database, KUBECONFIG="")
    assert ran.code == 2
    assert "--kubeconfig FILE" in ran.err
