import json
import tarfile
from pathlib import Path

import pytest

from tests.conformance.answer_scheduling import answer
from tests.conformance.judge import differences

ARCHIVE = Path(__file__).parent / "random.tar.xz"
NUMBER_OF_CASES = 1280
PARTS = 16

# Each was tried with a plain model that repeats the peer's mistakes on request; docs/differences.md tells the cases.
DRIFTS = "the peer undoes bookings of shared GPUs by inverse arithmetic, which drifts; kai's undo is exact"
DRIFTS_AT_RANDOM = "as above; how far it drifts depends on an order that the peer's maps decide"
LEAKS = "the peer leaves a solved statement of an unsatisfied group applied, and its undo drifts"
CHARGES = "the peer charges a queue again for a pod that is evicted twice, and its undo drifts"
TIES = "two devices score the same, and the order of the peer's map decides"

# Where kai decides otherwise than the peer, and why. A case that comes to agree must leave this list.
OTHERWISE = {
    "random-000152": DRIFTS_AT_RANDOM,
    "random-000323": DRIFTS,
    "random-000415": LEAKS,
    "random-000717": TIES,
    "random-000877": DRIFTS,
    "random-000980": DRIFTS_AT_RANDOM,
    "random-001039": DRIFTS,
    "random-001185": DRIFTS,
    "random-001193": DRIFTS_AT_RANDOM,
    "random-001198": DRIFTS,
    "random-001271": DRIFTS,
    "random-001412": CHARGES,
    "random-001478": DRIFTS,
}


@pytest.fixture(scope="module")
def clusters():
    # As a stream, in its own order: whoever goes back in what is compressed begins anew.
    with tarfile.open(ARCHIVE, "r|xz") as archive:
        return {Path(member.name).stem: archive.extractfile(member).read() for member in archive if member.isfile()}


def test_every_cluster_is_there(clusters):
    assert len(clusters) == NUMBER_OF_CASES
    assert set(OTHERWISE) <= set(clusters)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_clusters_are_decided_as_the_peer_does(clusters, part):
    names = sorted(clusters)[part::PARTS]
    wrong = {}
    for name in names:
        case = json.loads(clusters[name])
        given = {key: value for key, value in case.items() if key != "expected"}
        found = differences(case, answer(given))
        if bool(found) is not (name in OTHERWISE):
            wrong[name] = found or f"agrees now, but is listed: {OTHERWISE.get(name)}"
    assert names
    assert wrong == {}
