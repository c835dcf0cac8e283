"""Kueue's own schemas as judges: what the API server would say to an object, and what it would fill in.

The CRDs are not part of this repository: `PLIMSOLL_DATA` names the folder that holds `kueue-crds/`, else it is looked
for beside the repository. CEL is not spoken here: each rule that the schemas have is written out by hand, and a rule
that nobody wrote out fails the test instead of being passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

VERSION = "v1beta2"
CEL = "x-kubernetes-validations"
HOSTNAME = "kubernetes.io/hostname"


def crd_folder() -> Path | None:
    named = os.environ.get("PLIMSOLL_DATA", "")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    return folder / "kueue-crds" if (folder / "kueue-crds").is_dir() else None


@cache
def _schemas(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for file in sorted(folder.glob("*.yaml")):
        spec = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"]
        (version,) = [each for each in spec["versions"] if each["name"] == VERSION]
        assert version["storage"], f"{file.name}: {VERSION} is what is stored"
        found[spec["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
    return found


def schemas() -> dict[str, dict[str, Any]]:
    """The schemas by kind; skips the test where they are not."""
    folder = crd_folder()
    if folder is None:
        pytest.skip("Kueue's CRDs are not here: PLIMSOLL_DATA names the folder that holds kueue-crds/")
    return _schemas(folder)


def problems(content: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with an object, or with changing `old` into it."""
    schema = schemas()[content["kind"]]
    filled, filled_old = defaulted(schema, content), None if old is None else defaulted(schema, old)
    return [*_check(schema, filled, ""), *_check_rules(schema, filled, filled_old, "")]


def defaulted(schema: dict[str, Any], value: Any) -> Any:
    """With what the server fills in."""
    if isinstance(value, dict):
        filled = dict(value)
        for key, inner in schema.get("properties", {}).items():
            if key not in filled and "default" in inner:
                filled[key] = inner["default"]
            if key in filled:
                filled[key] = defaulted(inner, filled[key])
        return filled
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), item) for item in value]
    return value


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _check(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if path == ".metadata":
        yield from _check_metadata(value)
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not (_TYPES["integer"](value) or isinstance(value, str)):
            yield f"{path}: neither integer nor string"
    elif "type" in schema and not _TYPES[schema["type"]](value):
        yield f"{path}: not a {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        yield from _check_text(schema, value, path)
    elif isinstance(value, list):
        yield from _check_list(schema, value, path)
    elif isinstance(value, dict):
        yield from _check_object(schema, value, path)
    elif isinstance(value, int) and schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield f"{path}: {value} is not an int32"


def _check_text(schema: dict[str, Any], value: str, path: str) -> Iterator[str]:
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} is not like {schema['pattern']}"
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{path}: {len(value)} characters"


def _check_list(schema: dict[str, Any], value: list[Any], path: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{path}: {len(value)} items"
    keys = schema.get("x-kubernetes-list-map-keys", [])
    names = [tuple(item.get(key) for key in keys) if keys else repr(item) for item in value]
    if schema.get("x-kubernetes-list-type") in ("map", "set") and len(set(names)) != len(names):
        yield f"{path}: an item is there twice"
    for number, item in enumerate(value):
        yield from _check(schema.get("items", {}), item, f"{path}[{number}]")


def _check_object(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    for key in schema.get("required", []):
        if key not in value:
            yield f"{path}: {key} is missing"
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for key, inner in value.items():
        if key in known:
            yield from _check(known[key], inner, f"{path}.{key}")
        elif isinstance(rest, dict):
            yield from _check(rest, inner, f"{path}.{key}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{key}: unknown, the server would drop it"


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _check_metadata(metadata: dict[str, Any]) -> Iterator[str]:
    """What holds for every object, by the rules of Kubernetes itself."""
    if not _NAME.fullmatch(metadata["name"]) or len(metadata["name"]) > 253:
        yield f".metadata.name: {metadata['name']!r} is not a DNS name"
    namespace = metadata.get("namespace", "x")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", namespace) or len(namespace) > 63:
        yield f".metadata.namespace: {namespace!r} is not a DNS label"
    for key, value in (metadata.get("labels") or {}).items():
        if not _LABEL_NAME.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            yield f".metadata.labels: {key}={value} is not a label"
    for key, value in (metadata.get("annotations") or {}).items():
        if not _LABEL_NAME.fullmatch(key) or not isinstance(value, str):
            yield f".metadata.annotations: {key}={value!r} is not an annotation"


Rule = Callable[[Any, Any], bool]


def _resources(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in spec.get("resourceGroups", []):
        for flavor in group["flavors"]:
            yield from flavor["resources"]


def _same(key: str) -> Rule:
    return lambda new, old: "topologyName" not in old or new.get(key) == old.get(key)


RULES: dict[str, Rule] = {
    "borrowingLimit must be nil when cohort is empty": lambda new, _old: (
        "cohortName" in new or not any("borrowingLimit" in each for each in _resources(new))
    ),
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor": lambda new, _old: (
        "preference" not in new or new["whenCanBorrow"] == new["whenCanPreempt"] == "TryNextFlavor"
    ),
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never": lambda new, _old: (
        not (
            new["reclaimWithinCohort"] == "Never"
            and new.get("borrowWithinCohort", {}).get("policy", "Never") != "Never"
        )
    ),
    "flavors must have the same number of resources as the coveredResources": lambda new, _old: all(
        len(flavor["resources"]) == len(new["coveredResources"]) for flavor in new["flavors"]
    ),
    "field is immutable": lambda new, old: new == old,
    "at least one nodeLabel is required when topology is set": lambda new, _old: (
        "topologyName" not in new or len(new.get("nodeLabels", {})) >= 1
    ),
    "nodeLabels are immutable when topologyName is set": _same("nodeLabels"),
    "tolerations are immutable when topologyName is set": _same("tolerations"),
    "topologyName is immutable when topologyName is set": _same("topologyName"),
    "must be unique": lambda new, _old: all(new.count(each) == 1 for each in new),
    "the kubernetes.io/hostname label can only be used at the lowest level of topology": lambda new, _old: (
        HOSTNAME not in [each["nodeLabel"] for each in new[:-1]]
    ),
}
"""By message. Rules of taints and tolerations are not here: we set none."""

UNUSED = ("nodeTaints", "tolerations", "status")


def _check_rules(schema: dict[str, Any], value: Any, old: Any, path: str) -> Iterator[str]:
    for rule in schema.get(CEL, []):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        if not RULES[rule["message"]](value, old):
            yield f"{path}: {rule['message']}"
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            if key in value:
                before = old.get(key) if isinstance(old, dict) else None
                yield from _check_rules(inner, value[key], before, f"{path}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _check_rules(schema.get("items", {}), item, None, f"{path}[{number}]")


def rule_messages(schema: dict[str, Any]) -> Iterator[str]:
    """Of every rule that could concern what we set."""
    yield from (rule["message"] for rule in schema.get(CEL, []))
    for key, inner in schema.get("properties", {}).items():
        if key not in UNUSED:
            yield from rule_messages(inner)
    if "items" in schema:
        yield from rule_messages(schema["items"])
