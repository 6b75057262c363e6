"""Why a name belongs to no job: kai schedules none of its pods, and says why."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kai.api import names
from kai.api.kinds import key_of
from kai.manifests.unused import NO_GROUP, for_scheduler

if TYPE_CHECKING:
    from kai.answers.cases.case import Case
    from kai.api.kubernetes.pod import Pod


def why_left_out(kind: str, name: str, case: "Case") -> tuple[str, str]:
    """Return why the object called ``name`` is no job, and a hint; "" if the source has no such object.

    ``kind`` is a kind in lower case, or "" for any; ``name`` may have a namespace before it.
    """
    namespace, _, bare = name.rpartition("/")
    pool = _pool_of(kind, namespace, bare, case)
    if pool is not None:
        ours = case.settings.node_pool or f"what has no label {case.settings.node_pool_label}"
        hint = f"--config FILE with a SchedulingShard of partitionLabelValue: {pool} decides for it"
        return f"{bare} is in node pool {pool}, and this is decided for {ours}", hint
    for what, reason in (*_unused(kind, namespace, bare, case), *_ungrouped(kind, namespace, bare, case)):
        other = reason.partition("for scheduler ")[2].partition(",")[0]
        own = f"schedulerName: {case.settings.scheduler_name} in its pods gives it to kai"
        hint = f"{own}; --scheduler-name {other} asks what kai would do with it" if other else ""
        said = reason.replace("its pods are", "it is").replace("its pods have", "it has") if what == "Pod" else reason
        return f"kai does not place {what} {bare}: {said}", hint
    return "", ""


def _pool_of(kind: str, namespace: str, name: str, case: "Case") -> str | None:
    """Return the other node pool that a group, or the group of a pod or owner, belongs to; None if there is none."""
    groups = {key_of(each): each for each in case.objects.pod_groups}
    others = {key: each for key, each in groups.items() if not case.settings.owns(each.metadata.labels)}
    found = {key for key in others if key[1] == name and namespace in {"", key[0]} and kind in {"", "podgroup"}}
    for pod in case.objects.pods if others else ():
        if namespace in {"", pod.metadata.namespace} and _kind_called(kind, name, pod):
            found |= {(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP, ""))} & others.keys()
    return next((case.settings.pool(others[key].metadata.labels) or "none" for key in sorted(found)), None)


def _unused(kind: str, namespace: str, name: str, case: "Case") -> Iterator[tuple[str, str]]:
    """Yield kind and reason of input objects that took no part in the decision."""
    for each in case.unused:
        places = [found.partition("/") for found in each.names if kind in {"", each.kind.lower()}]
        if any(last == name and namespace in {"", first} for first, _, last in places):
            yield each.title, each.reason


def _ungrouped(kind: str, namespace: str, name: str, case: "Case") -> Iterator[tuple[str, str]]:
    """Yield kind and reason of pods without a pod group, or of their owners."""
    groups = {key_of(each) for each in case.objects.pod_groups}
    for pod in case.objects.pods:
        what = _kind_called(kind, name, pod) if namespace in {"", pod.metadata.namespace} else ""
        group = pod.metadata.annotations.get(names.POD_GROUP, "")
        if what and pod.spec.scheduler_name != case.settings.scheduler_name:
            yield what, for_scheduler(pod.spec.scheduler_name, case.settings.scheduler_name)
        elif what and (pod.metadata.namespace, group) not in groups:
            yield what, NO_GROUP if group else "its pods have no pod group yet"


def _kind_called(kind: str, name: str, pod: "Pod") -> str:
    """Return the kind of the pod, or of its owner, that is called ``name``; "" if neither is."""
    if kind in {"", "pod"} and pod.metadata.name == name:
        return "Pod"
    owners = (each for each in pod.metadata.owner_references if each.name == name)
    return next((each.kind for each in owners if kind in {"", each.kind.lower()}), "")
