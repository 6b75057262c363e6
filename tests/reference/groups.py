"""What the pod grouper makes of workloads: the table of all kinds, and the group of a manifest that a page shows."""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

import yaml

from kai.cli.extending.plugins import first_line
from kai.manifests import expand
from kai.manifests.workloads.table import source_of
from tests.reference.marks import table

_MANIFEST = re.compile(r"^```yaml[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def kinds(_: str, __: str) -> str:
    """Return the kinds that groupers serve, what becomes a group, and whose source a model follows."""
    groupers = {point.name: point.load() for point in entry_points(group="kai.groupers") if _is_own(point.value)}
    rows = set()
    for grouper in groupers.values():
        for pattern in getattr(grouper, "kinds", ()):
            rows.add(_kind(pattern.group, pattern.version, pattern.kind, grouper))
    return table(("kind", "API version", "what becomes a group", "expanded as by"), sorted(rows))


def _is_own(value: str) -> bool:
    return value.startswith("kai.")


def _kind(group_of_kind: str, version: str, kind: str, grouper: type) -> tuple[str, str, str, str]:
    source = "kai itself" if kind == "Pod" else source_of(group_of_kind, kind) or "-"
    shown = "/".join(filter(None, (group_of_kind, version)))
    return f"`{kind}`", f"`{shown}`", first_line(grouper).partition(". ")[0], source


def group(_: str, before: str) -> str:
    """Return what kai makes of the manifest above."""
    manifest = list(_MANIFEST.finditer(before))[-1][1]
    found = expand(list(yaml.safe_load_all(manifest)))
    if found.problems:
        raise ValueError(found.problems)
    groups = [each for each in found.manifests if each["kind"] == "PodGroup"]
    pods = [each for each in found.manifests if each["kind"] == "Pod"]
    values = {each["metadata"]["name"]: each["value"] for each in found.manifests if each["kind"] == "PriorityClass"}
    rows = [_row(each, pods, values) for each in groups]
    return table(("group", "queue", "pods", "start together", "sub-groups", "priority class", "preemptible"), rows)


def _row(each: Mapping[str, Any], pods: list[Mapping[str, Any]], values: Mapping[str, int]) -> tuple[str, ...]:
    spec, name = each["spec"], each["metadata"]["name"]
    mine = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["annotations"]["pod-group-name"] == name]
    shown = ", ".join(mine[:4]) + (f" and {len(mine) - 4} more" if len(mine) > 4 else "")
    priority = spec.get("priorityClassName", "train")
    said = spec.get("preemptibility")
    preemptible = said == "preemptible" if said else values.get(priority, 50) < 100
    whole = "minSubGroup" not in spec
    count = spec.get("minMember", 1) if whole else spec["minSubGroup"]
    least = f"{count} {'pod' if whole else 'sub-group'}{'' if count == 1 else 's'}"
    return (
        f"`{name}`",
        spec["queue"],
        shown,
        least,
        "; ".join(_subgroups(spec.get("subGroups", ()))) or "none",
        f"{priority} ({values.get(priority, 50)})",
        "yes" if preemptible else "no",
    )


def _subgroups(found: list[Mapping[str, Any]]) -> Iterator[str]:
    for each in found:
        yield f"{each['name']} {each.get('minMember', each.get('minSubGroup', ''))}"
