"""No decoder fails at what it reads: it takes it, or refuses it in words. All tests together give 100,000."""

import copy
import os
from pathlib import Path

import pytest

from kai.api.codec.manifest_text import load_values
from tests.fuzz import cluster
from tests.fuzz.running import batches_of, numbers_of, of_clusters, of_target
from tests.fuzz.target import try_out
from tests.fuzz.targets import TARGETS

OBJECTS = int(os.environ.get("KAI_FUZZ_OBJECTS", "100000"))
PARTS = 8
BY_NAME = {target.name: target for target in TARGETS}
REGRESSIONS = [
    case
    for path in sorted((Path(__file__).parent / "regressions").glob("*.yaml"))
    for case in load_values(path.read_bytes(), path.name)
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
def test_the_samples_of_a_decoder_are_right(target):
    known = target.samples()
    assert known
    assert all(try_out(target, copy.deepcopy(each)) for each in known)


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
def test_a_decoder_takes_or_refuses_whatever_it_is_given(target):
    ((_, numbers),) = [each for each in numbers_of(TARGETS, OBJECTS, 0, 1) if each[0] is target]
    assert list(of_target(target, numbers)) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_no_object_ends_a_cycle(part):
    assert list(of_clusters(batches_of(OBJECTS, part, PARTS))) == []


def test_a_batch_is_the_same_whenever_it_is_made():
    assert cluster.batch(7) == cluster.batch(7)


@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda each: each["about"])
def test_what_once_broke_a_decoder_is_refused_or_taken(case):
    if case["target"] == "cluster":
        cluster.run(cluster.raws_of(case["given"]))
        return
    target = BY_NAME[case["target"]]
    given = case["given"].encode("utf-8", "surrogateescape") if target.is_raw else case["given"]
    try_out(target, given)
