import json
from collections import Counter
from pathlib import Path

import pytest

from kai.api.codec.manifest_text import load_values
from tests.conformance.answer import answer, answerer, read_case
from tests.conformance.answer_scheduling import answer as answer_scheduling
from tests.conformance.judge import differences
from tests.conformance.victims import CHOSEN_BETTER, as_peer

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*/*.yaml"))

# Families that nobody can answer yet, with the reason in words. What stands here is not run, and cannot hide: a family
# that is neither here nor answered fails, and so does one that is here although it could be run.
LATER: dict[str, str] = {}

NUMBER_OF_CASES = 672


def case_in(path):
    (case,) = load_values(path.read_bytes(), str(path))
    return case


def family_of(path):
    return path.parent.name


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if family_of(path) not in LATER and name_of(path) not in CHOSEN_BETTER],
    ids=name_of,
)
def test_the_answer_is_the_right_one(path):
    # What comes out of the command is JSON; an answer that JSON cannot say would only be right here.
    assert differences(case_in(path), json.loads(json.dumps(answer(path)))) == []


@pytest.mark.parametrize("name", CHOSEN_BETTER)
# What is better in these by itself is said in their list; here the recorded answer has to come out all the same.
def test_with_the_peers_victims_the_recorded_answer_is_given(name):
    path = CASES / f"{name}.yaml"
    case = case_in(path)
    assert differences(case, answer_scheduling(as_peer(read_case(path)))) == []
    assert differences(case, answer(path)) != [], "it agrees by itself, and is to leave the list"


def test_every_case_is_there():
    assert len(FILES) == NUMBER_OF_CASES


def test_a_family_is_run_or_listed_with_a_reason():
    kinds = {family_of(path): case_in(path).get("kind", "scheduling") for path in FILES}
    silent = {family for family, kind in kinds.items() if family not in LATER and answerer(kind) is None}
    assert not silent, f"nobody answers these families, and no reason says why: {sorted(silent)}"
    assert set(LATER) <= set(kinds), "a family is listed that does not exist"
    assert all(len(reason.split()) > 3 for reason in LATER.values())


def test_a_wrong_answer_is_noticed():
    seen = Counter()
    for path in FILES:
        case = case_in(path)
        kind = case.get("kind", "scheduling")
        if seen[kind] < 3 and kind != "podgrouping":
            seen[kind] += 1
            wrong = WRONG[kind](case["expected"])
            assert differences(case, wrong) != [], f"{path}: accepted {wrong}"
    assert set(seen) == set(WRONG)


WRONG = {
    "scheduling": lambda expected: {
        "pods": {name: {"status": "Lost", "node": "", "gpuGroups": [], "numaZones": []} for name in expected["pods"]},
        "nodes": {},
        "counts": [],
    },
    "fairshare": lambda expected: {
        "fairShare": {
            uid: {name: share + 1 for name, share in each.items()} for uid, each in expected["fairShare"].items()
        },
        "remaining": {},
    },
    "admission": lambda expected: {"allowed": not expected["allowed"]},
    "binding": lambda expected: {"failed": not expected.get("failed"), "changes": {}},
    "status": lambda expected: {"failed": not expected.get("failed"), "status": {}},
}
