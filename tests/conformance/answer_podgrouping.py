"""Answers the cases of kind `podgrouping`: one pod is looked at once, and the decision carried out."""

from typing import Any

from kai.api import names
from kai.roles.podgrouper import Absent, Get, Grouping, Needs, Settings, Verb, group_pod, load_groupers
from kai.roles.podgrouper.grouper import KARTA, POD, POD_GROUP
from tests.doubles.known_objects import KnownObjects


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return the group that the pod names afterwards, and what changed on the pod."""
    known = KnownObjects.of(case["objects"], optional_kinds=[KARTA])
    settings = settings_of(case.get("config") or {})
    pod = known.get(Get(POD, case["pod"]["namespace"], case["pod"]["name"]))
    if isinstance(pod, Absent):
        return {"podGroup": None, "podPatch": {}}
    outcome = group_pod(pod, known, settings, load_groupers())
    if isinstance(outcome, Needs):
        raise TypeError(f"{outcome} cannot be: everything there is is known")
    return {
        "podGroup": _group_afterwards(pod, outcome, known),
        "podPatch": outcome.pod_patch or {},
        "failed": bool(outcome.failure),
        "message": outcome.failure or outcome.ignored,
    }


def settings_of(config: dict[str, Any]) -> Settings:
    """Return the settings that a case's `config` stands for."""
    defaults = Settings()
    return Settings(
        scheduler_name=config.get("schedulerName", defaults.scheduler_name),
        queue_label=config.get("queueLabelKey", defaults.queue_label),
        node_pool_label=config.get("nodePoolLabelKey", defaults.node_pool_label),
        knative_gangs=config.get("knativeGangSchedule", defaults.knative_gangs),
        legacy_groups=config.get("searchForLegacyPodGroups", defaults.legacy_groups),
        defaults_namespace=config.get("defaultsConfigMapNamespace", defaults.defaults_namespace),
        defaults_name=config.get("defaultsConfigMapName", defaults.defaults_name),
        namespace_labels=config.get("namespaceLabelSelector", defaults.namespace_labels),
    )


def _group_afterwards(pod: Any, outcome: Grouping, known: KnownObjects) -> Any:
    """Return the group that the pod's annotation names once the decision is carried out."""
    metadata = (outcome.pod_patch or pod)["metadata"]
    held = pod["metadata"].get("annotations") or {}
    name = (metadata.get("annotations") or held).get(names.POD_GROUP) or held.get(names.POD_GROUP)
    if not name:
        return None
    if outcome.group is not None and outcome.group.verb is not Verb.NOTHING:
        written: Any = outcome.group.manifest
        if written["metadata"]["name"] == name:
            return written
    found = known.get(Get(POD_GROUP, pod["metadata"].get("namespace", ""), name))
    return None if isinstance(found, Absent) else found
