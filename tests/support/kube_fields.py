"""Server-side apply, as far as a test double needs it: who holds which field, conflicts, and what an apply takes away.

A field is a path of keys to a value that is no object; lists are values, as Kueue's lists that we set are atomic.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Path = tuple[str, ...]
NOT_FIELDS = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
SERVER_METADATA = {
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionTimestamp", "finalizers",
}  # fmt: skip
ATOMIC = {("spec", "namespaceSelector")}


class Manager:
    """Who holds which fields, and how it got them."""

    def __init__(self, name: str, operation: str, subresource: str = "") -> None:
        self.name, self.operation, self.subresource = name, operation, subresource
        self.fields: set[Path] = set()


class Conflicts(Exception):
    """Fields that others hold, with who."""

    def __init__(self, found: list[tuple[Path, str]]) -> None:
        super().__init__(found)
        self.found = found


class Kept:
    """An object with its managers."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.managers: list[Manager] = []

    def _manager(self, name: str, operation: str) -> Manager:
        for each in self.managers:
            if (each.name, each.operation) == (name, operation):
                return each
        self.managers.append(Manager(name, operation))
        return self.managers[-1]

    def apply(self, wanted: dict[str, Any], manager: str, *, is_forced: bool) -> None:
        """Raises Conflicts, and then nothing has changed."""
        fields = dict(leaves(wanted))
        mine = self._manager(manager, "Apply")
        others = [each for each in self.managers if each is not mine]
        conflicts = [
            (path, each.name)
            for path, value in fields.items()
            for each in others
            if path in each.fields and look_up(self.content, path) != value
        ]
        if conflicts and not is_forced:
            if not mine.fields:
                self.managers.remove(mine)
            raise Conflicts(conflicts)
        for path, name in conflicts:
            for each in others:
                if each.name == name:
                    each.fields.discard(path)
        for path in mine.fields - set(fields):
            if not any(path in each.fields for each in others):
                remove(self.content, path)
        for path, value in fields.items():
            set_value(self.content, path, value)
        mine.fields = set(fields)
        self.managers = [each for each in self.managers if each.fields]

    def replace(self, content: dict[str, Any], manager: str) -> None:
        """Any other way to write: what it changes is its own from then on, and nobody is asked."""
        before, after = dict(leaves(self.content)), dict(leaves(content))
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        for each in self.managers:
            each.fields -= changed
        mine = self._manager(manager, "Update")
        mine.fields |= {path for path in changed if path in after}
        self.managers = [each for each in self.managers if each.fields]
        for path in changed:
            if path in after:
                set_value(self.content, path, after[path])
            else:
                remove(self.content, path)

    def shown(self) -> dict[str, Any]:
        """As the server returns it."""
        content = copy.deepcopy(self.content)
        content["metadata"]["managedFields"] = [
            {
                "manager": each.name,
                "operation": each.operation,
                "apiVersion": content["apiVersion"],
                "time": content["metadata"]["creationTimestamp"],
                "fieldsType": "FieldsV1",
                "fieldsV1": _tree(each.fields),
                **({"subresource": each.subresource} if each.subresource else {}),
            }
            for each in self.managers
        ]
        return content


def leaves(content: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in content.items():
        inner = (*path, key)
        if inner in NOT_FIELDS or inner[0] == "status" or (path == ("metadata",) and key in SERVER_METADATA):
            continue
        if isinstance(value, dict) and value and inner not in ATOMIC:
            yield from leaves(value, inner)
        else:
            yield inner, value


def look_up(content: dict[str, Any], path: Path) -> Any:
    place: Any = content
    for key in path:
        if not isinstance(place, dict) or key not in place:
            return None
        place = place[key]
    return place


def set_value(content: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        content = content.setdefault(key, {})
    content[path[-1]] = copy.deepcopy(value)


def remove(content: dict[str, Any], path: Path) -> None:
    inner = look_up(content, path[:-1])
    if isinstance(inner, dict):
        inner.pop(path[-1], None)


def _tree(fields: set[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(fields):
        place = tree
        for key in path:
            place = place.setdefault(f"f:{key}", {})
    return tree


def dotted(path: Path) -> str:
    return "".join(f".{key}" for key in path)
