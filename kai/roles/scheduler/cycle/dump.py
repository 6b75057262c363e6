"""The input of a cycle as a file that others can replay, and the order of waiting groups as JSON.

An archive is KAI-Scheduler's snapshot archive with fields of our own beside it: a zip with one member,
``snapshot.json``. Objects come without apiVersion and kind; parameters that are zero are left out; durations are
nanoseconds. It is made for each request from the cluster as it is then, so no cycle pays for it.

`job_order` returns the order in which allocation would serve the groups that wait.

Source: KAI-Scheduler's snapshot plugin (GET /get-snapshot), and its plugin reflectjoborder (GET /get-job-order).
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.codec.structuring import unstructure
from kai.api.fields import EMPTY, camel
from kai.deciding.configuration.profile_reading import PEER_KEYS
from kai.deciding.engine.cycle import Profile, waiting_order
from kai.facts.model.budgets import Key, Spent
from kai.framework.parameters import LEAST_HARM
from kai.intake import take_snapshot
from kai.intake.aside import Aside, without
from kai.intake.nodes import is_wanted
from kai.intake.settings import QueueAccess

if TYPE_CHECKING:
    from kai.roles.scheduler.cycle.cycle_input import CycleInput
    from kai.roles.scheduler.settings import SchedulerSettings

MEMBER: Final = "snapshot.json"
_NANOSECONDS: Final = 10**9
_LEFT_OUT: Final = "http://left-out"
# Kinds without a list in KAI-Scheduler's archive.
_OURS: Final = ("csi_nodes", "namespaces", "pod_disruption_budgets", "resource_claim_templates")
_NOT_THEIRS: Final = frozenset({"foreign", *_OURS})
_SHARDED: Final = frozenset({"queues", "pod_groups"})
_DEFAULT: Final[Mapping[str, Any]] = {
    "actions": "allocate, consolidation, reclaim, preempt, stalegangeviction",
    "tiers": [
        {
            "plugins": [
                {"name": name}
                for name in (
                    *("predicates", "proportion", "priority", "elastic", "kubeflow", "ray", "nodeavailability"),
                    *("gpusharingorder", "gpupack", "resourcetype", "subgrouporder", "taskorder", "nominatednode"),
                    "dynamicresources",
                )
            ]
            + [{"name": "nodeplacement", "arguments": {"cpu": "binpack", "gpu": "binpack"}}]
            + [
                {"name": name}
                for name in ("minruntime", "topology", "snapshot", "sg-nodelocalgreedy", "sg-multinodegang")
            ]
        }
    ],
}


def archive(given: CycleInput, settings: SchedulerSettings) -> bytes:
    """Return the archive of a cycle's input. Cost: seconds for 10,000s of pods; do not call it on the event loop."""
    return packed(archive_document(given, settings))


def archive_document(given: CycleInput, settings: SchedulerSettings) -> dict[str, Any]:
    """Return the content of an archive. KAI-Scheduler ignores ``kai``, which holds what its format has no field for."""
    past = given.past
    return {
        "config": peer_configuration(settings),
        "schedulerParams": parameters(settings),
        "rawObjects": raw_objects(given.objects, settings),
        "kai": {
            "now": given.now,
            "cycle": given.cycle,
            "kubernetes": str(given.kubernetes),
            "awaited": list(past.awaited),
            **({"refused": [attrs.asdict(each) for each in past.refused]} if past.refused else {}),
            **({"evicted": dict(past.evicted)} if past.evicted else {}),
            **({"protected": list(past.protected)} if past.protected else {}),
            "grants": [list(each) for each in given.grants],
            **({"aside": _aside(given.aside)} if given.aside else {}),
            **({"spent": _spent(past.spent)} if any(each.spec.budgets for each in given.objects.queues) else {}),
            **({"usage": {queue: attrs.asdict(each) for queue, each in past.usage.items()}} if past.usage else {}),
            **({"config": _without_password(settings.document)} if _is_ours(settings) else {}),
            **_more_objects(given.objects),
        },
    }


def _spent(spent: Mapping[Key, Spent] | None) -> list[dict[str, Any]]:
    """Return what was used of budgets, as readers of archives read it back."""
    return [
        {"queue": queue, "budget": budget, **attrs.asdict(each)}
        for (queue, budget), each in sorted((spent or {}).items())
    ]


def packed(document: Mapping[str, Any]) -> bytes:
    """Return a document as an archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(MEMBER, json.dumps(document, separators=(",", ":")))
    return out.getvalue()


def _more_objects(objects: ClusterObjects) -> dict[str, Any]:
    """Return the objects without a list in KAI-Scheduler's archive; {} if there are none."""
    lists = {camel(field): [_plain(each) for each in getattr(objects, field)] for field in _OURS}
    found = {key: members for key, members in lists.items() if members}
    return {"objects": found} if found else {}


def _aside(aside: Aside) -> list[list[object]]:
    return [[each.kind, each.namespace, each.name, gone] for each, gone in sorted(aside.items())]


def write_archive(given: CycleInput, settings: SchedulerSettings, reason: str) -> str:
    """Write the archive to a new file and return its path; "" if the file cannot be written."""
    folder, content = settings.dump_folder or None, archive(given, settings)
    path: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "wb", prefix=f"kai-{reason}-{given.cycle}-", suffix=".zip", dir=folder, delete=False
        ) as file:
            path = Path(file.name)
            file.write(content)
        return str(path)
    except OSError:
        # A part of an archive cannot be read, and the disk is probably full.
        if path is not None:
            with suppress(OSError):
                path.unlink()
        return ""


def peer_configuration(settings: SchedulerSettings) -> Mapping[str, Any]:
    """Return the configuration in KAI-Scheduler's form; its default where ours has a form of our own."""
    if settings.document is None or _is_ours(settings):
        return _DEFAULT
    return {**_DEFAULT, **_without_password(settings.document)}


def _without_password(document: Mapping[str, object] | None) -> dict[str, Any]:
    """Return a configuration without user name and password in the address of the usage database."""
    found: dict[str, Any] = dict(document or {})
    usage = found.get("usageDBConfig")
    if isinstance(usage, Mapping) and isinstance(usage.get("connectionString"), str):
        found["usageDBConfig"] = {**usage, "connectionString": address_without_password(usage["connectionString"])}
    return found


def address_without_password(address: str) -> str:
    """Return an address without user name and password; a placeholder for an address that cannot be parsed.

    A password may contain an "@", or an unquoted "/", which ends the authority early. So if the authority contains
    ":" or "@", everything up to the last "@" of the whole address is cut.
    """
    try:
        at = urlsplit(address)
        host, _ = at.hostname, at.port
    except ValueError:
        return _LEFT_OUT
    if not host:
        return _LEFT_OUT if address else ""
    if not {":", "@"}.intersection(at.netloc):
        return address
    _, found, rest = address.rpartition("@")
    return f"{at.scheme}://{rest}" if found else address


def _is_ours(settings: SchedulerSettings) -> bool:
    document = settings.document
    return document is not None and (
        not set(document) <= set(PEER_KEYS) or isinstance(document.get("actions"), list | tuple)
    )


def parameters(settings: SchedulerSettings) -> dict[str, Any]:
    """Return the flags that decisions depend on, under KAI-Scheduler's names; zero values are left out."""
    known, intake = settings.configuration.parameters, settings.intake
    values: dict[str, Any] = {
        "schedulerName": known.scheduler_name,
        "restrictSchedulingNodes": known.restrict_node_scheduling,
        "partitionParams": {"NodePoolLabelKey": intake.node_pool_label, "NodePoolLabelValue": intake.node_pool},
        "maxNumberConsolidationPreemptees": known.max_consolidation_preemptees,
        "scheduleCSIStorage": known.schedule_csi_storage,
        "useSchedulingSignatures": known.use_scheduling_signatures,
        "fullHierarchyFairness": intake.full_hierarchy_fairness,
        "allowConsolidatingReclaim": known.allow_consolidating_reclaim,
        "numOfStatusRecordingWorkers": settings.status_writers,
        "globalDefaultStalenessGracePeriod": round(known.default_staleness_grace_seconds * _NANOSECONDS),
        "schedulePeriod": round(settings.period_seconds * _NANOSECONDS),
        "stuckInReleasingThreshold": round(intake.stuck_in_releasing_seconds * _NANOSECONDS),
        "detailedFitErrors": known.detailed_fit_errors,
        "updatePodEvictionCondition": settings.mark_victims,
        "queueLabelKey": intake.queue_label_key,
        "victims": "" if known.victims == LEAST_HARM else known.victims,
        "queueAccess": "" if intake.queue_access is QueueAccess.OPEN else intake.queue_access.value,
    }
    return {key: value for key, value in values.items() if value}


def raw_objects(objects: ClusterObjects, settings: SchedulerSettings) -> dict[str, list[dict[str, Any]]]:
    """Return all objects by kind; only the shard's own nodes, queues and pod groups."""
    out: dict[str, list[dict[str, Any]]] = {}
    for field in attrs.fields_dict(ClusterObjects):
        if field in _NOT_THEIRS:
            continue
        members = getattr(objects, field)
        if field == "nodes":
            members = [node for node in members if is_wanted(node, settings.intake)]
        elif field in _SHARDED:
            members = [each for each in members if settings.intake.owns(each.metadata.labels)]
        if field == "config_maps":
            # Decisions depend only on whether a ConfigMap exists; its content may be secret.
            members = [attrs.evolve(each, data=EMPTY) for each in members]
        out[camel(field)] = [_plain(each) for each in members]
    return out


def _plain(obj: object) -> dict[str, Any]:
    return {key: value for key, value in unstructure(obj).items() if key not in {"apiVersion", "kind"}}


JOB_ORDER_PATH: Final = "/get-job-order"
NOT_READY: Final = b"Job order data not ready\n"


def job_order(given: CycleInput, settings: SchedulerSettings, profile: Profile) -> bytes:
    """Return names and priorities of the groups that wait, in the order of allocation, over all queues and by queue.

    Cost: a snapshot from scratch and the opening of a session; do not call it on the event loop.
    """
    snapshot = take_snapshot(without(given.objects, given.aside), given.now, settings.intake, given.past)
    everywhere: list[dict[str, Any]] = []
    queues: dict[str, list[dict[str, Any]]] = {}
    for row in waiting_order(snapshot, profile):
        group = snapshot.groups[row]
        entry = {"id": group.name, "priority": group.priority}
        everywhere.append(entry)
        queues.setdefault(group.queue, []).append(entry)
    document = {"global_order": everywhere, "queue_order": dict(sorted(queues.items()))}
    return json.dumps(document, indent=2).encode() + b"\n"
