"""Clusters made by Buildkite and Azure, from the command line; Azure's and Kubernetes' own clients look at them."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.connect.kueue import FIELD_MANAGER
from plimsoll.fleet.model import Phase, Service
from plimsoll.lifecycle.service import last_usages
from tests.support.azure import SUBSCRIPTION, HeldToken
from tests.support.azure_site import FAMILY, KUBE_TOKEN, NAMESPACE, QUICK_AZURE, Site, azure_login, spec
from tests.support.buildkite import ORGANISATION, TOKEN
from tests.support.command import PLIMSOLL
from tests.support.inside import plimsoll
from tests.support.operator import PLURAL
from tests.support.parts import missing_part
from tests.support.waiting import wait_until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, limit=None) as made:
        yield made


def part(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        missing_part(f"the client library {name}")


@contextmanager
def azure_client(site: Site) -> Iterator[Any]:
    """Azure's own client, as its documentation makes one."""
    with part("azure.mgmt.compute").ComputeManagementClient(
        HeldToken(), SUBSCRIPTION, base_url=site.cloud.url, credential_scopes=["https://management.azure.com/.default"]
    ) as client:
        yield client


PLAIN = {"enforce_https": False}
"""The library sends a token over https only, unless told so."""


def test_quota_is_what_azures_own_client_reads(site: Site) -> None:
    site.cloud.page_items = 2
    site.cloud.used_by_others = {FAMILY: 96, "cores": 200}
    site.plan(spec(), spec("puma", nodes=200, islands=1))
    site.run()
    with azure_client(site) as client:
        usages = {
            each.name.value: (each.limit, each.current_value) for each in client.usage.list("westeurope", **PLAIN)
        }
    assert len(usages) > 2, "there is more than one page of them"
    assert usages[FAMILY] == (10_000, 96)
    read = {key.family: (usage.limit, usage.used) for key, (usage, _) in last_usages(site.keeper).items()}
    assert {family: usages[family] for family in read} == read
    assert {FAMILY, "cores"} <= read.keys()
    assert (site.phase(), site.phase("puma")) == (Phase.PROVISIONING, Phase.PLANNED)  # 200 nodes want 19,200 cores
    assert "9,680 of 19,200 cores" in site.condition("QuotaSufficient", "puma").message  # 10,000 - 96 - 384 are free


def paths(content: Any, path: str = "") -> set[str]:
    """The names of all fields, without their values."""
    if isinstance(content, dict):
        return {path}.union(*(paths(value, f"{path}.{key}") for key, value in content.items()))
    return {path}.union(*(paths(each, path) for each in content)) if isinstance(content, list) else {path}


def test_objects_are_what_the_operators_sample_is_like_and_kubernetes_own_client_reads_them(site: Site) -> None:
    kubernetes = part("kubernetes")
    site.to_scale_sets()
    configuration = kubernetes.client.Configuration(
        host=site.api.url, api_key={"authorization": KUBE_TOKEN}, api_key_prefix={"authorization": "Bearer"}
    )
    with kubernetes.client.ApiClient(configuration) as client:
        custom = kubernetes.client.CustomObjectsApi(client)
        listed = custom.list_namespaced_custom_object("compute.azure.com", "v20220301", NAMESPACE, PLURAL)
    found = {each["metadata"]["name"]: each for each in listed["items"]}
    assert sorted(found) == ["lynx-1", "lynx-2"]
    one = found["lynx-1"]
    managers = {(each["manager"], each["operation"]) for each in one["metadata"]["managedFields"]}
    assert managers == {(FIELD_MANAGER, "Apply")}
    assert one["spec"]["sku"] == {"capacity": 2, "name": "Standard_ND96isr_H200_v5"}
    assert one["spec"]["owner"] == {"name": "lynx-rg"}
    assert one["spec"]["tags"] == {
        "plimsoll-cluster": "lynx",
        "plimsoll-island": "lynx-i1",
        "plimsoll-operation": "u-lynx-scale-sets-1",
    }
    folder = Path(os.environ.get("PLIMSOLL_DATA", "") or Path(__file__).resolve().parents[3] / "shared" / "data")
    file = folder / "azure" / "aso_vmss_sample_v20220301.yaml"
    if not file.is_file():
        pytest.skip("the operator's sample is not here: PLIMSOLL_DATA names the folder that holds azure/")
    want = paths(yaml.safe_load(file.read_text(encoding="utf-8")))
    not_ours = ("extensionProfile", "loadBalancerInboundNatPools")
    missing = {path for path in want - paths(one) if not any(word in path for word in not_ours)}
    assert missing == set()


def test_nodes_are_the_machines_that_azures_own_client_lists(site: Site) -> None:
    site.to_provisioned()
    with azure_client(site) as client:
        sets = {each.name: each for each in client.virtual_machine_scale_sets.list_all(**PLAIN)}
        machines = [
            machine
            for name in sorted(sets)
            for machine in client.virtual_machine_scale_set_vms.list("lynx-rg", name, **PLAIN)
        ]
    assert {name: each.sku.capacity for name, each in sets.items()} == {"lynx-1": 2, "lynx-2": 2}
    assert [(node.id, node.labels["provider_id"]) for node in site.nodes()] == [
        (machine.os_profile.computer_name, machine.id) for machine in machines
    ]


def environment(site: Site, folder: Path) -> dict[str, str]:
    """What `plimsoll cluster run` finds; Azure's login is that of its own command, whose double is on PATH."""
    return {
        **azure_login(folder),
        "PLIMSOLL_BUILDKITE_URL": site.buildkite.url,
        "PLIMSOLL_BUILDKITE_ORG": ORGANISATION,
        "PLIMSOLL_BUILDKITE_TOKEN": TOKEN,
        "PLIMSOLL_AZURE_URL": site.cloud.url,
        "PLIMSOLL_KUBERNETES_URL": site.api.url,
        "PLIMSOLL_KUBERNETES_TOKEN": KUBE_TOKEN,
    }


@contextmanager
def controller(db: str, folder: Path, settings: dict[str, str]) -> Iterator[None]:
    with (folder / "controller.txt").open("w") as out:
        process = subprocess.Popen(
            [str(PLIMSOLL), "--db", db, "cluster", "run", "--every", "1s"],
            stdout=out,
            stderr=out,
            env={**os.environ, **settings},
            cwd=folder,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


def test_the_command_line_brings_a_cluster_into_production(site: Site, tmp_path: Path) -> None:
    part("azure.mgmt.compute")
    db = f"sqlite:///{tmp_path}/site.db"
    settings = environment(site, tmp_path)
    recipe = tmp_path / "quick.yaml"
    recipe.write_text(QUICK_AZURE.replace("version: 1", "version: 2"))
    words = "cluster add lynx --region westeurope --sku H200 --nodes 4 --islands 2 --area eu --recipe azure"
    for command in (
        ["cluster", "recipe", "apply", recipe],
        [*words.split(), "--subscription", SUBSCRIPTION],
        ["cluster", "checkin", "lynx"],
    ):
        ran = plimsoll(*command, db=db, cwd=tmp_path, **settings)
        assert ran.code == 0, ran.err
    site.cloud.groups.add("lynx-rg")
    site.buildkite.polls_a_state, site.buildkite.course = 1, ("passed",)
    site.cloud.arrive_per_look = 1
    site.operator.start()
    with controller(db, tmp_path, settings):
        said = tmp_path / "controller.txt"

        def is_validating() -> bool:
            nodes = site.nodes()
            return len(nodes) == 4 and all(node.service is Service.VALIDATING for node in nodes)

        wait_until(is_validating, what=f"four nodes validate; {said.read_text()[-600:]}", seconds_max=60)
        site.pass_checks()
        wait_until(lambda: site.phase() is Phase.PRODUCTION, what="production", seconds_max=30)
    shown = plimsoll("cluster", "show", "lynx", "-o", "json", db=db, cwd=tmp_path, **settings).json()
    assert shown["phase"] == "production"
    assert [each["meta_data"]["step"] for each in site.buildkite.builds if each["state"] == "passed"].count(
        "checkin"
    ) == 1
    assert len(site.buildkite.builds) == 4, "check-in, bootstrap, services, dependencies: one build each"
    assert TOKEN not in said.read_text()
