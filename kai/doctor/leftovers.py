"""A check of what the operator of KAI-Scheduler left under the names of kai's Deployments.

Names of Deployments are equal on purpose. Applying a manifest to a Deployment that is there merges containers by name
and leaves owners as they are. So the program of KAI-Scheduler may run beside kai in one pod, and what is removed with
the Config of KAI-Scheduler may be kai.
"""

from __future__ import annotations

from typing import Final

from kai.doctor.findings import Finding, Looked, failure
from kai.doctor.seen import PART_OF, Manifest, Seen, key_of, labels_of, name_of
from kai.lenient import list_of, part_of, text_of
from kai.wording import first_of

_GROUP: Final = "kai.scheduler/"
_OURS: Final = "kai"
"""The name of the container in each Deployment of kai."""


def leftovers(seen: Seen) -> Looked:
    """Whether each Deployment of kai is kai's alone."""
    operators = [text_of(each, "metadata", "namespace") for each in seen.all("deployments") if _is_operator(each)]
    stop = f"kubectl -n {operators[0]} scale deploy kai-operator --replicas=0; " if operators else ""
    problems: list[Finding] = []
    for each in seen.all("deployments"):
        owner = _owner(each)
        if labels_of(each).get(PART_OF) != "kai" or not owner:
            continue
        namespace, name = text_of(each, "metadata", "namespace"), name_of(each)
        others = [
            text_of(container, "name")
            for container in list_of(each, "spec", "template", "spec", "containers")
            if text_of(container, "name") != _OURS
        ]
        beside = f", and runs {first_of(others)} of KAI-Scheduler beside kai" if others else ""
        problems.append(
            failure(
                f"deployment {key_of(each)} still belongs to {owner} of KAI-Scheduler, is deleted with it{beside}",
                f"{stop}kubectl -n {namespace} delete deploy {name}    then apply kai (docs/migrating-from-kai-go.md)",
                about=f"deployment/{key_of(each)}",
                found=f"owner {owner}" + (f", containers {', '.join(sorted((*others, _OURS)))}" if others else ""),
                expected=f"no owner, container {_OURS}",
            )
        )
    return Looked(well="no Deployment of kai is left over from KAI-Scheduler", findings=problems)


def _owner(deployment: Manifest) -> str:
    """Return which object of KAI-Scheduler owns a Deployment, as ``Kind name``; "" for none."""
    for owner in list_of(deployment, "metadata", "ownerReferences"):
        if text_of(owner, "apiVersion").startswith(_GROUP):
            return f"{text_of(owner, 'kind')} {text_of(owner, 'name')}"
    return ""


def _is_operator(deployment: Manifest) -> bool:
    return name_of(deployment) == "kai-operator" and part_of(deployment, "spec", "replicas") != 0
