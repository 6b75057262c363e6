import attrs

from kai.facts.model.constraints import NodeTerm, Requirement, Selector
from kai.intake import Intake
from kai.plugins.volumes import Volumes
from kai.plugins.volumes.objects import StorageCapacity, StorageClass, Volume, VolumeClaim, read_catalog
from tests.unit.intake.making import NOW, node, objects, other, taken
from tests.unit.plugins.stage import Stage


def read(*manifests):
    return read_catalog(Stage.of(Volumes(), taken(*manifests)).session.view)


def expression(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def test_a_claim_knows_its_class_size_owner_and_volume():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    metadata = {"ownerReferences": [owner], "annotations": {"volume.kubernetes.io/selected-node": "n"}}
    spec = {
        "storageClassName": "fast",
        "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "volumeMode": "Block",
        "selector": {"matchLabels": {"disk": "ssd"}},
    }
    made = other(
        "PersistentVolumeClaim", "v1", "c", namespace="a", metadata=metadata, spec=spec, status={"phase": "Bound"}
    )
    assert read(made).claims == {
        ("a", "c"): VolumeClaim(
            namespace="a",
            name="c",
            storage_class="fast",
            size=2**30,
            phase="Bound",
            volume="v",
            owner_pod="uid-p",
            selected_node="n",
            access_modes=("ReadWriteOnce", "ReadOnlyMany"),
            block=True,
            selector=Selector((Requirement("disk", "In", ("ssd",)),)),
            uid="uid-c",
        ),
    }


def test_a_bare_claim_wants_a_file_system_volume():
    found = read(other("PersistentVolumeClaim", "v1", "c", namespace="a")).claims["a", "c"]
    assert (found.access_modes, found.block, found.selector) == ((), False, None)


def test_a_claim_with_several_owners_belongs_to_no_pod():
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name} for name in ("p", "q")]
    made = other("PersistentVolumeClaim", "v1", "c", namespace="a", metadata={"ownerReferences": owners})
    assert read(made).claims["a", "c"].owner_pod == ""


def test_a_volume_has_its_mount_terms_and_claim():
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "x")]}]}
    spec = {
        "capacity": {"storage": "2Gi"},
        "storageClassName": "fast",
        "nodeAffinity": {"required": terms},
        "claimRef": {"namespace": "a", "name": "c", "uid": "uid-c"},
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block",
    }
    metadata = {"labels": {"disk": "ssd"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    made = other("PersistentVolume", "v1", "v", metadata=metadata, spec=spec, status={"phase": "Bound"})
    affinity = (NodeTerm((Requirement("zone", "In", ("x",)),)),)
    expected = Volume(
        name="v",
        storage_class="fast",
        size=2**31,
        node_affinity=affinity,
        claim=("a", "c"),
        claim_uid="uid-c",
        phase="Bound",
        access_modes=("ReadWriteMany",),
        block=True,
        deleting=True,
    )
    assert read(made).volumes == {"v": expected}
    assert read(made).volumes["v"].labels == {"disk": "ssd"}


def test_a_bare_volume_has_a_file_system_and_stays():
    found = read(other("PersistentVolume", "v1", "v", spec={"volumeMode": "Filesystem"})).volumes["v"]
    assert (found.access_modes, found.block, found.deleting) == ((), False, False)


def test_a_storage_class_has_its_binding_mode_and_topologies():
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["x", "y"]}]}]
    body = {"provisioner": "csi", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies}
    made = other("StorageClass", "storage.k8s.io/v1", "fast", **body)
    allowed = (NodeTerm((Requirement("zone", "In", ("x", "y")),)),)
    assert read(made).classes == {
        "fast": StorageClass(name="fast", provisioner="csi", wait=True, allowed_topologies=allowed)
    }


def test_capacities_and_the_drivers_that_report_them_always_count():
    version = "storage.k8s.io/v1"
    manifests = [
        other("CSIDriver", version, "reports", spec={"storageCapacity": True}),
        other("CSIDriver", version, "silent", spec={}),
        other(
            "CSIStorageCapacity",
            version,
            "c",
            namespace="a",
            storageClassName="fast",
            nodeTopology={"matchLabels": {"zone": "x"}},
            capacity="1Gi",
            maximumVolumeSize="512Mi",
        ),
        other("CSIStorageCapacity", version, "d", namespace="a", storageClassName="slow"),
    ]
    found = read(*manifests)
    zone = Selector((Requirement("zone", "In", ("x",)),))
    assert found.drivers == {"reports"}
    assert found.capacities == (
        StorageCapacity(name="a/c", storage_class="fast", nodes=zone, capacity=2**30, largest=2**29),
        StorageCapacity(name="a/d", storage_class="slow", nodes=None, capacity=0),
    )


def test_the_catalog_is_kept_while_no_volume_object_changes():
    claims = [other("PersistentVolumeClaim", "v1", name, namespace="a") for name in ("c", "d")]
    intake, before = Intake(), objects(*claims, node("n"))
    first, second = (
        read_catalog(Stage.of(Volumes(), intake.take(each, NOW)).session.view)
        for each in (before, attrs.evolve(before, nodes=()))
    )
    assert first is second
    assert set(first.claims) == {("a", "c"), ("a", "d")}
