"""What an API server would send about a workload: pages of lists and reads from watch streams, as bytes.

Objects of one round differ from those of the next by UID and version, as a Job that is submitted again does, so that
nothing can be recognised that a real cluster would not send again. Everything is encoded before a clock starts.
"""

import json
from collections.abc import Iterator
from itertools import count, groupby, islice
from typing import Literal

from attrs import frozen

from benchmarks.manifests import KINDS, Manifest, newcomers, nodes, running_pods
from benchmarks.workload import Workload

Form = Literal["list", "ADDED", "MODIFIED", "DELETED"]
"""An item of a list, or the type of a watch event."""

_AT_ONCE = 500
_versions = count(1)
"""Resource versions: every object of this process is newer than the one before."""


@frozen
class Batch:
    """Objects of one kind that one read from the network brings.

    ``bodies`` are items of a list where ``form`` is "list", else watch events.
    """

    api_version: str
    kind: str
    form: Form
    bodies: tuple[bytes, ...]


def listed(workload: Workload) -> Iterator[Batch]:
    """Encode every object of ``workload``, kind by kind, page by page."""
    for make in KINDS.values():
        yield from batches(make(workload), "list", 0)


def arriving(workload: Workload, round_: int) -> Iterator[Batch]:
    """Encode the events by which the groups and pods that wait appear."""
    return batches(newcomers(workload), "ADDED", round_)


def leaving(workload: Workload, round_: int) -> Iterator[Batch]:
    """Encode the events by which the groups and pods that wait are deleted again."""
    return batches(newcomers(workload), "DELETED", round_)


def updating(workload: Workload, round_: int) -> Iterator[Batch]:
    """Encode the events by which nodes and running pods change.

    Nodes have a MiB less than a round before; pods say in an annotation which round it is.
    """
    changed = islice(nodes(workload), workload.node_updates)
    yield from batches((_with_less(node, round_) for node in changed), "MODIFIED", 0)
    pods = islice(running_pods(workload), workload.updates)
    yield from batches((_annotated(pod, round_) for pod in pods), "MODIFIED", 0)


def _with_less(node: Manifest, round_: int) -> Manifest:
    status = node["status"]
    if not isinstance(status, dict):
        raise TypeError(f"status of a node: found {type(status).__name__}, expected an object")
    amounts = {**status["allocatable"], "memory": f"{1024 * 1024 - round_}Mi"}
    return {**node, "status": {**status, "allocatable": amounts}}


def _annotated(pod: Manifest, round_: int) -> Manifest:
    metadata = _metadata(pod)
    known = metadata.get("annotations")
    annotations = {**(known if isinstance(known, dict) else {}), "example.com/round": str(round_)}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def batches(manifests: Iterator[Manifest], form: Form, round_: int) -> Iterator[Batch]:
    """Encode ``manifests`` as what so many reads from the network bring; equal kinds come one after the other."""
    for (api_version, kind), members in groupby(manifests, key=_kind):
        while bodies := tuple(_encode(manifest, form, round_) for manifest in islice(members, _AT_ONCE)):
            yield Batch(api_version, kind, form, bodies)


def _kind(manifest: Manifest) -> tuple[str, str]:
    return str(manifest["apiVersion"]), str(manifest["kind"])


def _encode(manifest: Manifest, form: Form, round_: int) -> bytes:
    """Encode ``manifest`` with the UID of its round and a version of its own."""
    metadata = _metadata(manifest)
    own = {"uid": f"{metadata.get('uid', metadata['name'])}.{round_}", "resourceVersion": str(next(_versions))}
    stamped = {**manifest, "metadata": {**metadata, **own}}
    sent = stamped if form == "list" else {"type": form, "object": stamped}
    return json.dumps(sent, separators=(",", ":")).encode()


def _metadata(manifest: Manifest) -> dict[str, object]:
    metadata = manifest["metadata"]
    if not isinstance(metadata, dict):
        raise TypeError(f"metadata: found {type(metadata).__name__}, expected an object")
    return metadata
