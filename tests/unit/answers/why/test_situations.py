"""What a user is told in situations of a real cluster in which a job waits: the answer says what is in the way."""

import attrs
import pytest

from kai.answers.offline.run import simulate
from kai.answers.outcomes.job_lines import job_lines
from kai.answers.outcomes.overview import overview
from kai.answers.why.explanation import Explainer, explained, explained_jobs
from kai.lab.scenarios.scenario import read_short
from tests.unit.answers.why.test_explanation import found, proof

TWO = {"n1": {"gpu": 8}, "n2": {"gpu": 8}}
QUEUES = {"root": {"quota": 16}, "a": {"parent": "root", "quota": 8}, "b": {"parent": "root", "quota": 8}}
RACKS = {"n1": {"gpu": 8, "labels": {"rack": "r1"}}, "n2": {"gpu": 8, "labels": {"rack": "r2"}}}
ZONES = {name: {"gpu": 8, "labels": {"zone": zone}} for name, zone in (("n1", "z1"), ("n2", "z2"))}
MOUNT = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "home"}}]}
CLAIMED = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "one"}]}
DISKS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disks"},
    "provisioner": "csi.example.com",
}


def told(group, nodes=TWO, queues=QUEUES, topologies=None, objects=(), **others):
    """Return what is told of the job ``g``."""
    cluster = {"nodes": nodes, "objects": list(objects), "topologies": topologies or {}}
    groups = {**others, "g": {"queue": "a", **group}}
    jobs = found(groups, queues=queues, cluster=cluster).jobs
    return next(each for each in jobs if each.job.name == "g")


def held(queue="b", gpus=8, **more):
    """Return a job that runs on both nodes."""
    return {"queue": queue, "members": 2, "each": {"gpu": gpus}, "runs_on": ["n1", "n2"], **more}


def claim(**more):
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disks",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "home",
            "namespace": "default",
            "uid": "home",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if more else {},
        },
        "spec": {**spec, **more},
        "status": {"phase": "Bound" if more else "Pending"},
    }


def volume(*zones):
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk-1"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "nodeAffinity": {"required": required},
        },
        "status": {"phase": "Bound"},
    }


def device_class(name, expression):
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }


DEVICES = (
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n1-gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", "namespace": "default", "uid": "one", "labels": {"kai.scheduler/queue": "a"}},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    },
)


@pytest.mark.parametrize(
    ("topology", "label", "text"),
    [
        ({"topology": "nett", "required": "rack"}, "topologies", "there is net"),
        ({"topology": "net", "required": "racks"}, "levels", "net has rack, kubernetes.io/hostname"),
    ],
)
def test_a_missing_topology_or_level_lists_the_existing_ones(topology, label, text):
    group = {"members": 2, "each": {"gpu": 1}, "topology": topology}
    each = told(group, RACKS, topologies={"net": ["rack", "kubernetes.io/hostname"]})
    assert proof(each)[label] == text


def test_a_fraction_shows_free_parts_of_shared_gpus():
    runs = {"queue": "a", "preemptible": False, "members": 2, "minimum": 1, "each": {"fraction": 0.6}}
    nodes = {"n1": {"gpu": 1}, "n2": {"gpu": 1}}
    each = told({"each": {"fraction": 0.5}}, nodes, x={**runs, "runs_on": ["n1", "n2"]})
    assert each.reason.code == "NoRoom"
    assert proof(each)["free parts"] == "0.8 GPUs of shared ones, the largest of each node: 0.4 on n1, n2"


def test_gpu_memory_requests_name_free_memory_and_holders():
    runs = {"queue": "a", "preemptible": False, "each": {"gpu_memory": 50000}, "runs_on": "n1"}
    each = told({"each": {"gpu_memory": 40000}}, {"n1": {"gpu": 1, "gpu_memory": 81920}}, x=runs)
    assert proof(each)["free parts"].endswith(": 0.389 on n1")
    assert proof(each)["used by"].startswith("x 0.6")


def test_gpu_memory_lost_by_rounding_is_explained():
    each = told({"each": {"gpu_memory": 81920}}, {"n1": {"gpu": 4, "gpu_memory": 81920}})
    assert each.reason.text.endswith("the largest GPU has 81900 MiB, since memory of GPUs counts in whole hundreds")
    each = told({"each": {"gpu_memory": 82000}}, {"n1": {"gpu": 4, "gpu_memory": 81920}})
    assert each.reason.text.endswith("the largest GPU has 81900 MiB")


def test_a_required_affinity_shows_the_values_of_nodes():
    expression = {"key": "zone", "operator": "In", "values": ["z3"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    each = told({"each": {"gpu": 1}, "spec": spec}, ZONES)
    assert proof(each)["affinity"] == "zone in z3 is on none of 2 nodes; others have z1 or z2"


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (
            (DISKS, claim(volumeName="disk-1"), volume("z3")),
            "claim home is bound to volume disk-1, which nodes reach where zone is z3",
        ),
        ((DISKS, claim(volumeName="disk-1")), "claim home is bound to volume disk-1, which does not exist"),
        (
            (DISKS, claim()),
            "claim home is not bound yet; csi.example.com has to provide a volume of class disks first",
        ),
        ((DISKS,), "claim home does not exist in namespace default"),
    ],
    ids=["another zone", "no volume", "not bound", "no claim"],
)
def test_an_unreachable_volume_is_named_with_its_place(objects, text):
    each = told({"each": {"gpu": 1}, "spec": MOUNT}, ZONES, objects=objects)
    assert proof(each)["volume"] == text


def test_a_taken_host_port_names_its_pods():
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    spec = {"containers": [{**container, "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    each = told({"spec": spec}, x=held("a", 1, minimum=1, spec=spec))
    assert proof(each)["ports"] == "8080 is used by x-0 on n1, x-1 on n2"


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (
            device_class("gpu.example.com", "false"),
            "1 of class gpu.example.com, which selects false; offered: 1 device of driver gpu.example.com",
        ),
        (
            device_class("gpu", "device.driver == 'gpu.example.com'"),
            "there is no device class gpu.example.com; there is gpu",
        ),
    ],
    ids=["selects nothing", "is not there"],
)
def test_a_device_class_shows_its_selector_and_the_offers(known, text):
    each = told({"spec": CLAIMED}, {"n1": {}, "n2": {}}, objects=[known, *DEVICES])
    assert proof(each)["devices"] == f"claim one: {text}"


def test_a_missing_claim_template_is_named():
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}},
    }
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "on"}]}
    each = told({"spec": spec}, {"n1": {}, "n2": {}}, objects=[device_class("gpu", "true"), template])
    assert proof(each)["devices"] == "there is no ResourceClaimTemplate default/on; there is one"
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    each = told({"spec": spec}, {"n1": {}, "n2": {}}, objects=[device_class("gpu", "false"), template, DEVICES[0]])
    assert proof(each)["devices"].startswith("claim g-0-gpu-0: 1 of class gpu, which selects false; offered: 1 device")
    group = {"members": 5, "spec": spec}
    each = told(group, {"n1": {}, "n2": {}}, objects=[device_class("gpu", "false"), template, DEVICES[0]])
    assert [one.text.partition(":")[0] for one in each.evidence if one.label == "devices"] == [
        "claim g-0-gpu-0, g-1-gpu-0, g-2-gpu-0 and 2 more"
    ]
    assert proof(each)["needs"].startswith("5 pods x 1 GPU")


def test_short_cpus_are_shown_beside_idle_gpus():
    nodes = {"n1": {"gpu": 8, "cpu": 32}, "n2": {"gpu": 8, "cpu": 32}, "n3": {"cpu": 4}}
    each = told({"each": {"gpu": 1, "cpu": 8}}, nodes, x={**held("a", 0, preemptible=False), "each": {"cpu": 28}})
    assert [one.text for one in each.evidence if one.label == "idle"] == [
        "16 GPUs: 8 on n1, n2",
        "4 cores on n1, n2 (nodes with idle GPUs)",
    ]


def test_nodes_of_another_pool_are_named_if_none_remains():
    nodes = {"n1": {"gpu": 8, "labels": {"kai.scheduler/node-pool": "blue"}}}
    each = told({"each": {"gpu": 1}}, nodes)
    assert each.reason.code == "NoNodes"
    assert proof(each)["left out"] == "n1: not of the node pool that is served, or without a worker label"


@pytest.mark.parametrize("group", [{"each": {"gpu": 8}}, {"members": 2, "each": {"gpu": 4}}], ids=["pod", "gang"])
@pytest.mark.parametrize(
    ("victim", "queues", "why"),
    [
        ({"preemptible": False}, {"b": {"parent": "root", "quota": 16}}, "x is non-preemptible"),
        (
            {"started": "5m"},
            {"b": {"parent": "root", "quota": 8, "reclaim_min_runtime": "30m"}},
            "x is protected by its minimum runtime",
        ),
    ],
    ids=["non-preemptible", "minimum runtime"],
)
def test_a_reclaim_without_victims_shows_the_cause(group, victim, queues, why):
    each = told(group, queues={**QUEUES, **queues}, x=held(**victim))
    assert proof(each)["reclaim"] == f"queue a may take from others, and none can be taken: {why}"


def test_a_possible_reclaim_mentions_no_protected_jobs():
    queues = {**QUEUES, "a": {"parent": "root", "quota": 0}, "b": {"parent": "root", "quota": 16}}
    each = told({"each": {"gpu": 8}}, queues=queues, x=held())
    assert not proof(each).keys() & {"reclaim", "preempt"}


@pytest.mark.parametrize(
    ("priority", "victim", "text"),
    [
        (50, {}, "no job that runs in queue a has a lower priority than 50"),
        (90, {"preemptible": False}, "of lower priority in queue a: x is non-preemptible"),
        (90, {"started": "1m"}, "of lower priority in queue a: x is protected by its minimum runtime"),
    ],
)
def test_a_job_shows_why_it_preempts_nothing(priority, victim, text):
    queues = {"root": {"quota": 16}, "a": {"parent": "root", "quota": 16, "preempt_min_runtime": "10m"}}
    each = told({"each": {"gpu": 1}, "priority": priority}, queues=queues, x=held("a", **victim))
    assert proof(each)["preempt"] == text


@pytest.mark.parametrize("members", [1, 5], ids=["too few in all", "enough in all"])
def test_the_sub_group_that_lacks_pods_is_named(members):
    subgroups = {
        "workers": {"members": 2, "minimum": 3, "each": {"gpu": 1}},
        "leader": {"members": members, "minimum": 1, "each": {"gpu": 1}},
    }
    each = told({"subgroups": subgroups})
    assert each.reason.code == "NotReady"
    assert each.reason.text == "only 2 of the 3 pods that must start together exist in its sub-group workers"


def test_jobs_of_other_queues_ahead_are_counted():
    runs = {"queue": "a", "preemptible": False, "each": {"gpu": 8}, "runs_on": "n1"}
    others = {f"q{n}": {"queue": "b", "each": {"gpu": 8}} for n in range(4)}
    mine = {f"p{n}": {"queue": "a", "each": {"gpu": 8}} for n in range(2)}
    each = told({"each": {"gpu": 8}}, {"n1": {"gpu": 8}}, r=runs, **mine, **others)
    assert each.position == 3
    assert proof(each)["in line"] == "2 of the queue and 4 of other queues are tried before it at present"
    # Once a place is given, the queue that has it comes later than before.
    each = told({"each": {"gpu": 8}}, {"n1": {"gpu": 8}}, **mine, **others)
    assert "in line" not in proof(each)


@pytest.mark.parametrize(
    ("there", "what"), [("setting", "has setting"), ("other", "has none of a name like it")], ids=["near", "none"]
)
def test_a_missing_config_map_suggests_similar_names(there, what):
    container = {"name": "main", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    known = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": there, "namespace": "default"}}
    each = told({"spec": {"containers": [container]}}, objects=[known])
    assert proof(each)["config map"] == f"settings does not exist; namespace default {what}"


GOING = ("queue a, which is being deleted, stays a while: once it is gone, no more of its jobs start",)


def leaving(*names):
    """Return a case in which queues are being deleted; g waits in a, h starts in b."""
    groups = {"g": {"queue": "a", "each": {"gpu": 9}}, "h": {"queue": "b", "each": {"gpu": 1}}}
    document = {"about": "x", "cluster": {"nodes": TWO}, "queues": QUEUES, "groups": groups, "run": ["allocate"]}
    case = read_short(document, "leaving")
    queues = tuple(
        attrs.evolve(each, metadata=attrs.evolve(each.metadata, deletion_timestamp=1e9))
        if each.metadata.name in names
        else each
        for each in case.objects.queues
    )
    return simulate(attrs.evolve(case, objects=attrs.evolve(case.objects, queues=queues)))


def test_a_queue_under_deletion_is_noted_for_its_jobs():
    outcome = leaving("a")
    seen = overview(outcome)
    lines = {line.job.name: line for line in job_lines(outcome, seen)}
    told_of = {name: explained_jobs(outcome, Explainer(outcome, seen), [line]) for name, line in lines.items()}
    assert (told_of["g"].assumptions, told_of["h"].assumptions) == (GOING, ())
    assert explained(outcome, seen).assumptions == GOING
    assert [each.partition(",")[0] for each in explained(leaving("root"), seen).assumptions] == ["queue root"]
