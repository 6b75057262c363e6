from kai.model.constraints import NodeTerm, Requirement, Selector
from kai.model.volume import StorageCapacity, StorageClass, Volume, VolumeClaim
from tests.unit.intake.making import other, taken


def read(*manifests, **settings):
    return taken(*manifests, **settings).catalog.volumes


def expression(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def test_a_claim_knows_its_class_size_owner_and_volume():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    metadata = {"ownerReferences": [owner], "annotations": {"volume.kubernetes.io/selected-node": "n"}}
    spec = {"storageClassName": "fast", "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}
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
        ),
    }


def test_a_claim_with_several_owners_belongs_to_no_pod():
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name} for name in ("p", "q")]
    made = other("PersistentVolumeClaim", "v1", "c", namespace="a", metadata={"ownerReferences": owners})
    assert read(made).claims["a", "c"].owner_pod == ""


def test_a_volume_knows_from_where_it_can_be_mounted_and_whose_it_is():
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "x")]}]}
    spec = {
        "capacity": {"storage": "2Gi"},
        "storageClassName": "fast",
        "nodeAffinity": {"required": terms},
        "claimRef": {"namespace": "a", "name": "c"},
    }
    made = other("PersistentVolume", "v1", "v", spec=spec, status={"phase": "Bound"})
    affinity = (NodeTerm((Requirement("zone", "In", ("x",)),)),)
    expected = Volume(
        name="v", storage_class="fast", size=2**31, node_affinity=affinity, claim=("a", "c"), phase="Bound"
    )
    assert read(made).volumes == {"v": expected}


def test_a_class_says_when_it_binds_and_where_it_may_provision():
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["x", "y"]}]}]
    body = {"provisioner": "csi", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies}
    made = other("StorageClass", "storage.k8s.io/v1", "fast", **body)
    allowed = (NodeTerm((Requirement("zone", "In", ("x", "y")),)),)
    assert read(made).classes == {
        "fast": StorageClass(name="fast", provisioner="csi", wait=True, allowed_topologies=allowed)
    }


def test_capacities_and_the_drivers_that_report_them_count_only_when_asked_for():
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
        ),
        other("CSIStorageCapacity", version, "d", namespace="a", storageClassName="slow"),
    ]
    assert (read(*manifests).drivers, read(*manifests).capacities) == (frozenset(), ())
    found = read(*manifests, schedule_csi_storage=True)
    zone = Selector((Requirement("zone", "In", ("x",)),))
    assert found.drivers == {"reports"}
    assert found.capacities == (
        StorageCapacity(name="a/c", storage_class="fast", nodes=zone, capacity=2**30),
        StorageCapacity(name="a/d", storage_class="slow", nodes=None, capacity=0),
    )
