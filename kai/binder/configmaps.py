"""The config maps through which the container of a pod learns which GPUs it shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.fields import EMPTY
from kai.api.kinds import title
from kai.api.kubernetes.core import ConfigMap
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Plan, Ref, create, delete, find, get, patch
from kai.binder.outcome import BindFailureError


def upsert_config_map(
    pod: Pod,
    name: str,
    values: Mapping[str, str],
    *,
    renewed: Mapping[str, str] = EMPTY,
) -> Plan[ConfigMap]:
    """Return the config map of a pod that holds `values`; it is made, or an existing one brought up to date.

    What else the pod's own map holds stays. One that an earlier pod of the name left, or that holds the same already,
    is taken over and emptied first. Any other stays as it is: an annotation of the pod chooses the name, and the user
    who writes it need not have any right to config maps. `renewed` are values for keys that are only written where they
    exist.

    Source: the peer takes over whatever has the name.
    Raises: BindFailureError if the name is taken; RefusedError.
    """
    ref = Ref(ConfigMap, name, pod.metadata.namespace)
    existing = yield from find(ref)
    if existing is not None:
        # It may be the one that a failed attempt has just taken back, and a pod without its map never starts.
        existing = yield from find(ref, fresh=True)
    if existing is None:
        made = yield from create(ref, _manifest(pod, name, values))
        if made is not None:
            return made
        existing = yield from get(ref, fresh=True)
    body = _change(pod, existing, values, renewed)
    if not body:
        return existing
    return (yield from patch(ref, body, uid=existing.metadata.uid))


def delete_config_map(pod: Pod, name: str) -> Plan[bool]:
    """Delete a config map that was made for a pod; return False if there is none, or it was not made for this one.

    Raises: RefusedError.
    """
    ref = Ref(ConfigMap, name, pod.metadata.namespace)
    existing = yield from find(ref)
    if existing is None or not (_is_of(pod, existing) or _is_left(existing)):
        return False
    return (yield from delete(ref, uid=existing.metadata.uid))


def _owners_json(pod: Pod) -> list[dict[str, str]]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}]


def _manifest(pod: Pod, name: str, values: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": pod.metadata.namespace, "ownerReferences": _owners_json(pod)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(values)}


def _change(pod: Pod, existing: ConfigMap, values: Mapping[str, str], renewed: Mapping[str, str]) -> dict[str, Any]:
    """Return the merge patch that brings a config map up to date; empty if it is."""
    if not _is_of(pod, existing):
        if not (_is_left(existing) or _is_of_an_earlier_life(pod, existing) or _says_the_same(existing, values)):
            raise _taken(pod, existing)
        return _take_over(pod, existing, values)
    wanted = {**values, **{key: value for key, value in renewed.items() if key in existing.data}}
    changed = {key: value for key, value in wanted.items() if existing.data.get(key) != value}
    return {"data": changed} if changed else {}


def _take_over(pod: Pod, existing: ConfigMap, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the merge patch that leaves nothing of a config map but its name."""
    return {
        "metadata": {
            "ownerReferences": _owners_json(pod),
            "labels": None,
            "annotations": None,
        },
        "data": {**dict.fromkeys(key for key in existing.data if key not in values), **values},
        "binaryData": None,
    }


def _is_of(pod: Pod, existing: ConfigMap) -> bool:
    return any(owner.uid == pod.metadata.uid for owner in existing.metadata.owner_references)


def _is_of_an_earlier_life(pod: Pod, existing: ConfigMap) -> bool:
    """Return whether only a pod that had this one's name owns a map: it is gone, and so will be the map."""
    owners = existing.metadata.owner_references
    return bool(owners) and all((owner.kind, owner.name) == ("Pod", pod.metadata.name) for owner in owners)


def _is_left(existing: ConfigMap) -> bool:
    """Return whether a map without an owner can only have been made for pods that share GPUs."""
    return not existing.metadata.owner_references and gpu_sharing.is_drawn(existing.metadata.name)


def _says_the_same(existing: ConfigMap, values: Mapping[str, str]) -> bool:
    """Return whether a map holds exactly what the pod's own would: taking it over loses nothing."""
    return bool(values) and dict(existing.data) == dict(values)


def _taken(pod: Pod, existing: ConfigMap) -> BindFailureError:
    found = f"found one that was not made for {title(pod)}"
    wanted = f"expected none of that name: its annotation {names.SHARED_GPU_CONFIG_MAP} must begin no other's name"
    return BindFailureError(f"{title(existing)}: {found}, {wanted}", retryable=False)
