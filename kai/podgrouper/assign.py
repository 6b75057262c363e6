"""What to write on a pod so that the scheduler finds its group."""

from kai.api import names
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.resource import Resource


def pod_patch(pod: Resource, draft: GroupDraft) -> dict[str, object] | None:
    """Return the merge patch that puts ``pod`` into its group and sub-group, or nothing when it is there already.

    A sub-group label that another writer set stays when the grouper knows no sub-group.
    """
    metadata: dict[str, object] = {}
    if pod.annotations.get(names.POD_GROUP) != draft.name:
        metadata["annotations"] = {names.POD_GROUP: draft.name}
    if draft.pod_subgroup and pod.labels.get(names.SUBGROUP) != draft.pod_subgroup:
        metadata["labels"] = {names.SUBGROUP: draft.pod_subgroup}
    return {"metadata": metadata} if metadata else None
