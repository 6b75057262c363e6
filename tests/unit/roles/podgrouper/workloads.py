"""Small clusters for the tests of the pod grouper: a pod, its owners, and what is decided about it."""

from kai.roles.podgrouper import Grouping, Settings, group_pod, load_groupers
from kai.roles.podgrouper.grouper import KARTA
from tests.doubles.known_objects import KnownObjects

TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"


def thing(api_version, kind, name="work", *, namespace="ns", labels=None, annotations=None, owners=(), **fields):
    """Return a manifest; its uid is derived from its name, `owners` are manifests."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            **({"namespace": namespace} if namespace else {}),
            **({"labels": labels} if labels else {}),
            **({"annotations": annotations} if annotations else {}),
            **({"ownerReferences": [reference(owner) for owner in owners]} if owners else {}),
        },
        **fields,
    }


def reference(owner):
    """Return the reference by which an object names its owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def pod_of(*owners, name="pod-0", **metadata):
    """Return a pod for kai that names `owners`, the first of which counts."""
    spec = {"schedulerName": "kai-scheduler", **metadata.pop("spec", {})}
    return thing("v1", "Pod", name, owners=owners, spec=spec, **metadata)


def priority_class(name):
    """Return a priority class."""
    return thing("scheduling.k8s.io/v1", "PriorityClass", name, namespace="", value=1)


def pod_group(name, *, owners=(), spec=None, **metadata):
    """Return a group as it stands in the cluster."""
    return thing("scheduling.run.ai/v2alpha2", "PodGroup", name, owners=owners, spec=spec or {}, **metadata)


def decide(pod, *objects, settings=None) -> Grouping:
    """Return what is decided about `pod` where nothing but it and `objects` exists."""
    settings = settings or Settings()
    known = KnownObjects.of([pod, *objects], optional_kinds=[KARTA])
    outcome = group_pod(pod, known, settings, load_groupers())
    assert isinstance(outcome, Grouping)
    return outcome


def group_of(pod, *objects, settings=None):
    """Return the PodGroup that is written for `pod`; its failure is the test's."""
    outcome = decide(pod, *objects, settings=settings)
    assert not outcome.failure, outcome.failure
    assert outcome.group is not None, outcome.ignored
    return outcome.group.manifest


def spec_of(pod, *objects, settings=None):
    """Return the spec of the PodGroup that is written for `pod`."""
    return group_of(pod, *objects, settings=settings)["spec"]


def failure_of(pod, *objects, settings=None):
    """Return why `pod` cannot be grouped."""
    outcome = decide(pod, *objects, settings=settings)
    assert outcome.failure
    assert outcome.group is None
    assert outcome.pod_patch is None
    return outcome.failure


def tree_of(spec):
    """Return the sub-groups of a spec by name, as (parent, minimum of pods, minimum of sub-groups)."""
    return {
        each["name"]: (each.get("parent"), each.get("minMember"), each.get("minSubGroup")) for each in spec["subGroups"]
    }


def subgroup_of(outcome):
    """Return the sub-group that a decision puts the pod into."""
    return ((outcome.pod_patch or {}).get("metadata", {}).get("labels") or {}).get("kai.scheduler/subgroup-name")
