import numpy as np
import pytest

from kai.plugins.dra import Dra
from kai.plugins.dra.accounting import assigned_placements, releasing_claims
from tests.unit.plugins.dra.manifests import CLASS, NODE, claim, claiming, offer
from tests.unit.plugins.stage import Stage, pod, snapshot_of

HELD = [("n1", "d0")]


def releasing(*manifests, concerned=None):
    """Return the names of the claims that are being released; ``concerned`` are the rows of pods that claim."""
    stage = Stage.of(Dra(), snapshot_of(NODE, CLASS, offer("n1", "d0", "d1"), claiming("z-0", "z"), *manifests))
    snapshot, view = stage.session.snapshot, stage.session.view
    rows = np.arange(len(snapshot.pods)) if concerned is None else np.array(concerned, np.int64)
    found = releasing_claims(view, assigned_placements(view, rows), rows)
    return sorted(name for _, name in found)


def test_a_claim_is_released_while_its_user_is_terminating():
    held = claim("c", held=HELD, users=["default-a-0"])
    assert releasing(held, claiming("a-0", "c", on="n1")) == []
    assert releasing(held, claiming("a-0", "c", on="n1", leaving=True)) == ["c"]


def test_a_claim_that_names_only_deleted_pods_is_releasing():
    assert releasing(claim("c", held=HELD, users=["default-a-0"])) == ["c"]


@pytest.mark.parametrize(("phase", "released"), [("Succeeded", ["c"]), ("Failed", ["c"]), ("Unknown", [])])
def test_a_claim_is_released_once_its_user_has_ended(phase, released):
    held = claim("c", held=HELD, users=["default-a-0"])
    assert releasing(held, claiming("a-0", "c", on="n1", status={"phase": phase})) == released


def test_one_user_that_stays_keeps_a_claim():
    held = claim("c", held=HELD, users=["default-a-0", "default-b-0", "default-c-0"])
    going = claiming("a-0", "c", on="n1", leaving=True)
    assert releasing(held, going, claiming("b-0", "c", on="n1")) == []
    assert releasing(held, going, claiming("b-0", "c")) == []  # it is being bound
    assert releasing(held, going) == ["c"]


def test_a_user_not_yet_listed_keeps_its_claim():
    held = claim("c", held=HELD, users=["default-a-0"])
    assert releasing(held, claiming("b-0", "c", on="n1")) == []


def test_a_terminating_pod_that_is_stuck_keeps_its_claim():
    held = claim("c", held=HELD, users=["default-a-0"])
    stuck = claiming("a-0", "c", on="n1", metadata={"deletionTimestamp": "1970-01-01T00:00:00Z"})
    assert releasing(held, stuck) == []


def test_a_generated_claim_is_releasing_without_its_pod():
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "a-0", "uid": "default-a-0", "controller": True}]
    made = claim("c", held=HELD, metadata={"ownerReferences": owner})
    assert releasing(made, pod("a-0", on="n1")) == []
    assert releasing(made) == ["c"]


def test_a_listed_user_keeps_a_claim_without_reference():
    held = claim("c", held=HELD, users=["default-a-0"])
    assert releasing(held, pod("a-0", on="n1"), concerned=[1]) == []


def test_users_that_are_no_pods_keep_a_claim():
    held = claim("c", held=HELD, users=["default-a-0"])
    held["status"]["reservedFor"].append({"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "j"})
    assert releasing(held) == []


def test_a_claim_without_users_or_devices_is_not_released():
    assert releasing(claim("c", held=HELD)) == []
    assert releasing(claim("c", users=["default-a-0"])) == []
