"""Play a step of a cluster's creation without any cloud, for the demo and for tests.

    python -m plimsoll.connect.rehearsal STEP     checkin bootstrap fill services dependencies burn-in drain destroy

It is told what a step is told, in its environment: PLIMSOLL_CLUSTER and PLIMSOLL_OPERATION (names), PLIMSOLL_SETS_FILE
(a JSON object a line: {"set": "lynx-1", "island": "lynx-i1", "nodes": 48, "prefix": "lynx", "first": 1}, whose machines
are lynx-0001 to lynx-0048) and PLIMSOLL_NODES_FILE (a node a line). It prints what a step prints (see `step_output`);
bootstrap and destroy speak as `terraform apply -json` does. PLIMSOLL_REHEARSAL says how it shall go, as words of
key=value, or as a JSON object of the same:

    seconds=2          how long a step takes, give or take a quarter, by the names of cluster and step
    fail=STEP:REASON   the step fails on its way for that reason and exits with 1; STEP:REASON:never where no retry
                       helps; several are separated by commas
    blocked=STEP,…     the step says that it waits for a person, and goes on after `seconds` more
    until=FILE         as soon as that file is there nothing fails; a blocked step waits for it, an hour at the most
    filled=0.5         the share of the machines of each set that come
    share=0.97         the share of the machines that pass the burn-in

`lynx.fail=fill:NoCapacity` holds for the cluster lynx only. Where PLIMSOLL_REHEARSAL_LOG names a file, a line
`OPERATION STEP begin` is added to it, so that it can be counted how often each step ran. Decides nothing by chance, and
must never touch anything but its output and that file.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from plimsoll.errors import UsageError
from plimsoll.times import format_time, utc_now
from plimsoll.words import counted, near

SECONDS = 2.0
SECONDS_MAX = 3600.0
TICKS_MAX = 20
"""In how many pieces the lines of a step come."""
TICK_SECONDS_MIN = 0.01
BLOCKED_SECONDS_MAX = 3600.0
BLOCKED_POLL_SECONDS = 0.05
SETS_MAX = 1_000
NODES_MAX = 100_000
INPUT_BYTES_MAX = 1 << 26
TERRAFORM_VERSION = "1.11.4"
UI_VERSION = "1.2"

_KEYS = ("seconds", "fail", "blocked", "until", "filled", "share")
_PARTS = {
    "checkin": ("subscription", "quota of cores", "addresses", "images", "names", "contacts"),
    "services": ("dns", "identity", "storage", "container registry", "scheduler", "metrics", "logs", "node agent"),
    "dependencies": ("network peering", "file systems", "secrets", "datasets", "quota service", "dashboards"),
}
_FAULTS = (
    "NVLink: 2 of 18 links down on GPU 5",
    "NCCL all-reduce: 61 GB/s, expected at least 180 GB/s",
    "InfiniBand: port 3 is down",
    "GPU 2 fell off the bus (XID 79)",
    "dcgmi diag: memory bandwidth too low on GPU 7",
)
_WHY = {
    "OutOfQuota": "the subscription has no more cores of this family",
    "NoCapacity": "the region has no more machines of this size today",
    "Credentials": "the credentials were not accepted",
}

Json = dict[str, Any]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class ScaleSet(msgspec.Struct, frozen=True):
    """A scale set, as the step is told."""

    set: Name
    island: Name
    nodes: Annotated[int, Meta(ge=0, le=NODES_MAX)]
    prefix: Name
    first: Annotated[int, Meta(ge=0, le=NODES_MAX)] = 1

    def names(self) -> list[str]:
        return [f"{self.prefix}-{number:04d}" for number in range(self.first, self.first + self.nodes)]


class Scene(msgspec.Struct, frozen=True):
    """What is played: the step, what it is told, and how it shall go."""

    step: str
    cluster: str
    sets: tuple[ScaleSet, ...] = ()
    nodes: tuple[str, ...] = ()
    seconds: float = SECONDS
    reason: str = ""
    may_retry: bool = True
    is_blocked: bool = False
    until: str = ""
    filled: float = 1.0
    share: float = 1.0


# Reading what was asked for.


def read_scene(step: str, environment: Mapping[str, str]) -> Scene:
    """The scene that the environment describes."""
    if step not in STEPS:
        raise UsageError(
            "no_such_step", f"no step is called {step!r}{near(step, STEPS)}", next_step=f"name one of {' '.join(STEPS)}"
        )
    cluster = environment.get("PLIMSOLL_CLUSTER", "")
    wanted = _wishes(environment.get("PLIMSOLL_REHEARSAL", ""), cluster)
    failures = dict(_failure(text) for text in _listed(wanted.get("fail", "")))
    reason, may_retry = failures.get(step, ("", True))
    return Scene(
        step=step,
        cluster=cluster,
        sets=_sets(_body(environment, "PLIMSOLL_SETS_FILE")),
        nodes=tuple(_body(environment, "PLIMSOLL_NODES_FILE").split()[:NODES_MAX]),
        seconds=_number(wanted, "seconds", default=SECONDS, most=SECONDS_MAX) * _pace(cluster, step),
        reason=reason,
        may_retry=may_retry,
        is_blocked=step in _listed(wanted.get("blocked", "")),
        until=wanted.get("until", ""),
        filled=_number(wanted, "filled", default=1.0, most=1.0),
        share=_number(wanted, "share", default=1.0, most=1.0),
    )


def _wishes(text: str, cluster: str) -> dict[str, str]:
    """How it shall go in this cluster; what names the cluster comes before what holds for all."""
    told: dict[str, str] = {}
    if text.lstrip().startswith("{"):
        try:
            told = {str(key): str(value) for key, value in msgspec.json.decode(text, type=dict[str, Any]).items()}
        except (ValueError, RecursionError):
            raise _bad("PLIMSOLL_REHEARSAL", "it is no JSON object") from None
    else:
        for word in text.split():
            key, is_pair, value = word.partition("=")
            if not is_pair:
                raise _bad("PLIMSOLL_REHEARSAL", f"{word!r} is not key=value")
            told[key] = value
    general, own = {}, {}
    for key, value in told.items():
        where, _, name = key.rpartition(".")
        if name not in _KEYS:
            raise _bad("PLIMSOLL_REHEARSAL", f"{name!r} is not known{near(name, _KEYS)}")
        if not where:
            general[name] = value
        elif where == cluster:
            own[name] = value
    return general | own


def _listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _failure(text: str) -> tuple[str, tuple[str, bool]]:
    step, _, rest = text.partition(":")
    reason, _, retry = rest.partition(":")
    if step not in STEPS or not reason or retry not in ("", "later", "never"):
        raise _bad("PLIMSOLL_REHEARSAL", f"fail={text}: expected STEP:REASON or STEP:REASON:never")
    return step, (reason, retry != "never")


def _number(wanted: Mapping[str, str], key: str, *, default: float, most: float) -> float:
    try:
        value = float(wanted.get(key, default))
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise _bad("PLIMSOLL_REHEARSAL", f"{key}={wanted[key]}: expected a number from 0 to {most:g}")
    return value


def _pace(cluster: str, step: str) -> float:
    """From 0.75 to 1.25, always the same for the same names."""
    return 0.75 + _drawn(cluster, step) / (1 << 32) / 2


def _drawn(*names: str) -> int:
    return int.from_bytes(hashlib.sha256("/".join(names).encode()).digest()[:4], "big")


def _body(environment: Mapping[str, str], key: str) -> str:
    if not (path := environment.get(key)):
        return ""
    try:
        with Path(path).open("rb") as file:
            return file.read(INPUT_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(key, f"{path} can't be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None


def _sets(text: str) -> tuple[ScaleSet, ...]:
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        sets = tuple(msgspec.json.decode(line, type=ScaleSet) for line in lines[:SETS_MAX])
    except ValueError as error:
        raise _bad("PLIMSOLL_SETS_FILE", str(error)) from None
    if (count := sum(one.nodes for one in sets)) > NODES_MAX:
        raise _bad("PLIMSOLL_SETS_FILE", f"{count:,} nodes, expected at most {NODES_MAX:,}")
    return sets


def _bad(key: str, message: str) -> UsageError:
    return UsageError(
        "bad_rehearsal", f"{key}: {message}", next_step="see: python -m pydoc plimsoll.connect.rehearsal", key=key
    )


# What is said.


def lines(scene: Scene) -> list[Json]:
    """All that a step says that goes well."""
    said = STEPS[scene.step](scene)
    return said if said[-1].get("type") == "result" else [*said, _result(scene, f"{scene.step} done")]


def failed_lines(scene: Scene) -> list[Json]:
    """What a step says that does not: it does half, or with terraform all but the last resource."""
    well = [line for line in STEPS[scene.step](scene) if line["type"] != "result"]
    why = f"{_WHY.get(scene.reason, 'as the rehearsal was told')} (rehearsed)"
    said = well[: len(well) // 2]
    if scene.step in ("bootstrap", "destroy"):
        said = well[:-2]  # without the end of the last resource, and without the sum
        hook = well[-2]["hook"]
        address = hook["resource"]["addr"]
        ends = "Creation" if scene.step == "bootstrap" else "Destruction"
        said.append(_ui(f"{address}: {ends} errored after {hook['elapsed_seconds']}s", "apply_errored", hook=hook))
        found: Json = {"severity": "error", "summary": scene.reason, "detail": why, "address": address}
        found["range"] = {"filename": "main.tf", "start": {"line": 12, "column": 1, "byte": 310}}
        said.append(_ui(f"Error: {scene.reason}", "diagnostic", level="error", diagnostic=found))
    retry = "later" if scene.may_retry else "never"
    return [*said, {"type": "failed", "reason": scene.reason, "message": why, "retry": retry}]


def _result(scene: Scene, message: str, **outputs: object) -> Json:
    return {"type": "result", "message": message, "outputs": {"cluster": scene.cluster, **outputs}}


def _progress(done: int, of: int, message: str) -> Json:
    return {"type": "progress", "done": done, "of": of, "message": message}


def _parts(scene: Scene) -> list[Json]:
    parts = _PARTS[scene.step]
    return [_progress(done, len(parts), f"{part} ready") for done, part in enumerate(parts, 1)]


def _fill(scene: Scene) -> list[Json]:
    said: list[Json] = []
    asked, come = sum(one.nodes for one in scene.sets), 0
    for one in scene.sets:
        names = one.names()[: _part_of(one.nodes, scene.filled)]
        labels = {"set": one.set}
        said += [{"type": "node", "node": name, "island": one.island, "labels": labels} for name in names]
        come += len(names)
        said.append(_progress(come, asked, f"{one.set}: {len(names):,} of {counted(one.nodes, 'machine')}"))
    return [*said, _result(scene, f"{come:,} of {counted(asked, 'machine')} came", nodes=come)]


def _burn_in(scene: Scene) -> list[Json]:
    """Those that do not pass are the same every time."""
    count = len(scene.nodes)
    by_luck = sorted(scene.nodes, key=lambda node: (_drawn(scene.cluster, node), node))
    bad = set(by_luck[_part_of(count, scene.share) :])
    said: list[Json] = []
    for done, node in enumerate(scene.nodes, 1):
        is_ok = node not in bad
        detail = "dcgmi diag 3, NCCL and HPL passed" if is_ok else _FAULTS[_drawn(node) % len(_FAULTS)]
        said.append({"type": "node", "node": node, "ok": is_ok, "detail": detail})
        if done % 50 == 0 or done == count:
            said.append(_progress(done, count, f"{counted(done, 'machine')} burnt in"))
    passed = count - len(bad)
    return [*said, _result(scene, f"{passed:,} of {counted(count, 'machine')} passed", passed=passed)]


def _part_of(count: int, share: float) -> int:
    return int(count * share + 0.5)


def _drain(scene: Scene) -> list[Json]:
    count = len(scene.nodes)
    said = [_progress(done, count, f"{node} drained") for done, node in enumerate(scene.nodes, 1)]
    return [*said, _result(scene, f"{counted(count, 'machine')} drained")]


def _ui(message: str, kind: str, *, level: str = "info", **rest: object) -> Json:
    return {"@level": level, "@message": message, "@module": "terraform.ui", "type": kind, **rest}


def _bootstrap(scene: Scene) -> list[Json]:
    return _terraform(scene, _resources(scene), action="create", words=("Creating", "Creation"))


def _destroy(scene: Scene) -> list[Json]:
    return _terraform(scene, _resources(scene)[::-1], action="delete", words=("Destroying", "Destruction"))


def _resources(scene: Scene) -> list[Json]:
    singles = (
        "azurerm_resource_group.cluster",
        "azurerm_virtual_network.cluster",
        "azurerm_kubernetes_cluster.cluster",
        "azurerm_storage_account.images",
    )
    made = [_resource(address, key=None) for address in singles]
    made += [
        _resource("azurerm_subnet.island", key=island) for island in dict.fromkeys(one.island for one in scene.sets)
    ]
    scale_set = "azurerm_orchestrated_virtual_machine_scale_set.set"
    return made + [_resource(scale_set, key=one.set) for one in scene.sets]


def _resource(address: str, *, key: str | None) -> Json:
    kind, _, name = address.partition(".")
    full = address if key is None else f'{address}["{key}"]'
    return {
        "addr": full,
        "module": "",
        "resource": full,
        "implied_provider": "azurerm",
        "resource_type": kind,
        "resource_name": name,
        "resource_key": key,
    }


def _terraform(scene: Scene, resources: Sequence[Json], *, action: str, words: tuple[str, str]) -> list[Json]:
    """What `terraform apply -json` prints, or `destroy`. Two are under way at a time."""
    begins, ends = words
    count = len(resources)
    is_new = action == "create"
    changes = {"add": count if is_new else 0, "change": 0, "import": 0, "remove": 0 if is_new else count}
    said = [_ui(f"Terraform {TERRAFORM_VERSION}", "version", terraform=TERRAFORM_VERSION, ui=UI_VERSION)]
    hooks: list[Json] = [{"resource": one, "action": action} for one in resources]
    for one, change in zip(resources, hooks, strict=True):
        said.append(_ui(f"{one['addr']}: Plan to {action}", "planned_change", change=change))
    plan = f"Plan: {changes['add']} to add, 0 to change, {changes['remove']} to destroy."
    said.append(_ui(plan, "change_summary", changes={**changes, "operation": "plan"}))
    for place in range(count + 1):
        if place < count:
            said.append(_ui(f"{resources[place]['addr']}: {begins}...", "apply_start", hook=hooks[place]))
        if place:
            one = resources[place - 1]
            seconds = 1 + _drawn(scene.cluster, one["addr"]) % 90
            hook = {**hooks[place - 1], "elapsed_seconds": seconds}
            said.append(_ui(f"{one['addr']}: {ends} complete after {seconds}s", "apply_complete", hook=hook))
    done = (
        f"Apply complete! Resources: {count} added, 0 changed, 0 destroyed."
        if is_new
        else f"Destroy complete! Resources: {count} destroyed."
    )
    operation = "apply" if is_new else "destroy"
    return [*said, _ui(done, "change_summary", changes={**changes, "operation": operation})]


STEPS: dict[str, Callable[[Scene], list[Json]]] = {
    "checkin": _parts,
    "bootstrap": _bootstrap,
    "fill": _fill,
    "services": _parts,
    "dependencies": _parts,
    "burn-in": _burn_in,
    "drain": _drain,
    "destroy": _destroy,
}


# Saying it.


def play(scene: Scene) -> int:
    """Say it in its time; the exit code."""
    if scene.is_blocked:
        asks = "the person who checks clusters in" if scene.step == "checkin" else "on-call"
        _say([{"type": "blocked", "message": f"{scene.step} waits for a person (rehearsed)", "asks": asks}])
        wait = BLOCKED_SECONDS_MAX if scene.until else scene.seconds
        deadline = time.monotonic() + wait
        while not _is_there(scene.until) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(BLOCKED_POLL_SECONDS, left))
    has_failed = bool(scene.reason) and not _is_there(scene.until)
    said = failed_lines(scene) if has_failed else lines(scene)
    ticks = max(1, min(TICKS_MAX, len(said), int(scene.seconds / TICK_SECONDS_MIN)))
    begun = time.monotonic()
    for tick in range(ticks):
        _say(said[len(said) * tick // ticks : len(said) * (tick + 1) // ticks])
        # The time is counted from the beginning, so that it takes as long as it shall however slow the machine is.
        time.sleep(max(0.0, begun + scene.seconds * (tick + 1) / ticks - time.monotonic()))
    return 1 if has_failed else 0


def _is_there(path: str) -> bool:
    return bool(path) and Path(path).exists()


def _say(messages: Iterable[Json]) -> None:
    now = format_time(utc_now())
    stamped = ({**message, "@timestamp": now} if "@level" in message else message for message in messages)
    sys.stdout.write("".join(f"{msgspec.json.encode(message).decode()}\n" for message in stamped))
    sys.stdout.flush()


def _note(step: str, environment: Mapping[str, str]) -> None:
    """One write to the end of the file: the lines of two steps never mix."""
    if path := environment.get("PLIMSOLL_REHEARSAL_LOG"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{environment.get('PLIMSOLL_OPERATION', '-')} {step} begin\n".encode())
        finally:
            os.close(file)


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command; the exit code."""
    try:
        if len(arguments) != 1:
            raise UsageError("no_step", "expected the name of one step", next_step=f"name one of {' '.join(STEPS)}")
        scene = read_scene(arguments[0], environment)
    except UsageError as error:
        sys.stderr.write(f"{error.message}; {error.next_step}\n")
        return error.exit_code
    _note(scene.step, environment)
    return play(scene)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
