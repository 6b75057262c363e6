import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.generate.census import census, of_kind
from tests.generate.features import FREQUENCIES, Chosen, UnknownFeatureError, parse_features
from tests.generate.laws import broken_laws
from tests.generate.scenario import generate, write_text

ROOT = Path(__file__).parents[3]
PLAIN = Chosen(frozenset(), frozenset())


@pytest.fixture(scope="module")
def many():
    return [generate(seed) for seed in range(300)]


def test_every_feature_appears_among_three_hundred_seeds(many):
    unseen = [name for name, count in census(many).items() if count == 0]
    assert unseen == []


def test_no_law_is_broken(many):
    broken = {scenario["name"]: broken_laws(scenario) for scenario in many}
    assert {name: laws for name, laws in broken.items() if laws} == {}


def test_clusters_have_up_to_sixteen_nodes(many):
    sizes = Counter(len(of_kind(scenario, "Node")) for scenario in many)
    assert min(sizes) == 1
    assert max(sizes) == 16


def test_no_expectation_is_written(many):
    assert not any("expected" in scenario for scenario in many)


def test_the_same_seed_makes_the_same_bytes():
    assert [write_text(generate(seed)) for seed in range(20)] == [write_text(generate(seed)) for seed in range(20)]


def test_different_seeds_make_different_clusters(many):
    assert len({json.dumps(scenario["objects"]) for scenario in many}) == len(many)


def test_bytes_do_not_depend_on_the_order_of_sets(tmp_path):
    for hash_seed in ("0", "1"):
        subprocess.run(
            [sys.executable, "-m", "tests.generate", "--seed", "5", "--count", "8", "--out", tmp_path / hash_seed],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        )
    first, second = (sorted((tmp_path / hash_seed).iterdir()) for hash_seed in ("0", "1"))
    assert [file.name for file in first] == [f"generated-{seed:06d}.yaml" for seed in range(5, 13)]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_scenario_file_has_one_object_per_line():
    scenario = generate(3)
    text = write_text(scenario)
    assert json.loads(text) == scenario
    assert sum(line.startswith('{"apiVersion"') for line in text.splitlines()) == len(scenario["objects"])


@pytest.mark.parametrize("feature", FREQUENCIES)
def test_a_disabled_feature_appears_in_no_scenario(feature):
    chosen = parse_features(f"all,-{feature}")
    assert all(feature not in generate(seed, chosen)["description"].split() for seed in range(10))


@pytest.mark.parametrize("feature", FREQUENCIES)
def test_a_feature_alone_makes_valid_clusters(feature):
    chosen = parse_features(feature)
    for seed in range(10):
        scenario = generate(seed, chosen)
        assert feature in scenario["description"].replace(",", "").split()
        assert broken_laws(scenario) == []


def test_without_features_nothing_runs_and_nothing_is_special():
    seen = {name for name, count in census(generate(seed, PLAIN) for seed in range(50)).items() if count}
    assert seen <= {
        "a whole GPU",
        "a pod with CPU only",
        "a node of unknown GPU memory",
        "queues on two levels",
        "an unlimited quota",
    }


@pytest.mark.parametrize(
    ("feature", "sight"),
    [
        ("mig", "a MIG request"),
        ("dra", "a claim by template"),
        ("numa", "NUMA zones"),
        ("gated", "a gated pod"),
        ("taints", "a taint"),
        ("volumes", "a bound claim of storage"),
        ("bind-requests", "a request to bind"),
        ("fractions", "a fraction of a GPU"),
    ],
)
def test_a_feature_is_seen_only_when_named(feature, sight):
    needed = "running,gangs,"
    seen = census(generate(seed, parse_features(needed + feature)) for seed in range(30))
    unseen = census(generate(seed, parse_features(f"all,-{feature}")) for seed in range(30))
    assert seen[sight] > 0
    assert unseen[sight] == 0


def test_a_part_brings_what_it_is_part_of():
    assert parse_features("dra-all").always == {"dra", "dra-all"}


def test_an_unknown_feature_names_those_that_exist():
    with pytest.raises(UnknownFeatureError, match="gangs"):
        parse_features("gongs")
