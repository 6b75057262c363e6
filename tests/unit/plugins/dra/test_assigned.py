import numpy as np

from kai.plugins.dra import Dra
from kai.plugins.dra.accounting import assigned_placements
from tests.unit.plugins.dra.manifests import CLASS, NODE, claim, claiming, offer
from tests.unit.plugins.stage import Stage, pod, snapshot_of


def assigned(*manifests):
    """Return the devices by pod that stands on a node."""
    stage = Stage.of(Dra(), snapshot_of(NODE, CLASS, *manifests))
    snapshot, view = stage.session.snapshot, stage.session.view
    found = assigned_placements(view, np.arange(len(snapshot.pods)))
    return {snapshot.pods[row].name: [each.device for each in placement.devices()] for row, placement in found.items()}


def test_pods_that_stand_nowhere_hold_nothing():
    assert assigned(offer("n1", "d0"), claim("c"), claiming("a-0", "c")) == {}


def test_pods_hold_what_their_claims_are_allocated():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    assert assigned(offer("n1", "d0"), held, claiming("a-0", "c", on="n1")) == {"a-0": ["d0"]}


def test_a_claim_owned_by_a_pod_counts_without_reference():
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "a-0", "uid": "default-a-0", "controller": True}]
    made = claim("made", held=[("n1", "d0")], users=["default-a-0"], metadata={"ownerReferences": owner})
    other = claim("other", held=[("n1", "d1")], users=["default-a-0"])
    found = assigned(offer("n1", "d0", "d1"), made, other, pod("a-0", on="n1"), claiming("b-0", "made"))
    assert found == {"a-0": ["d0"]}
