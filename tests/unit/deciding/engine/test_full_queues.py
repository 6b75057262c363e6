"""Groups of a full queue are refused together, and told what each would have been told alone."""

import attrs
import pytest

from kai.deciding.engine import fast_path
from kai.deciding.engine.cycle import run_cycle
from kai.testing import RecordingSink, default_profile_with, snapshot

QUEUES = {
    "top": {"limit": 12},
    "full": {"parent": "top", "limit": 2, "quota": 2},
    "tight": {"parent": "top", "quota": 1},
    "free": {"parent": "top", "quota": 4},
    "other": {"quota": 4},
}


def waiting():
    """Return gangs of two sizes in turns, in a queue that is full, one that may hold no more for good, and others."""
    groups = {"busy": {"queue": "full", "members": 2, "each": {"gpu": 1}, "runs_on": ["n0", "n0"]}}
    groups["firm"] = {"queue": "tight", "each": {"gpu": 1}, "priority": 100, "runs_on": ["n1"]}
    for number in range(40):
        gang = {"members": 3, "minimum": 1 + number % 3, "each": {"gpu": 1}}
        groups[f"full-{number:02}"] = {"queue": "full", **gang, "priority": 50 + number % 4}
        groups[f"tight-{number:02}"] = {"queue": "tight", **gang, "priority": 100 - 50 * (number % 7 == 0)}
    for number in range(8):
        groups[f"free-{number:02}"] = {"queue": "free", "members": 2, "minimum": 1 + number % 2, "each": {"gpu": 1}}
        groups[f"other-{number:02}"] = {"queue": "other", "members": 2, "minimum": 2, "each": {"gpu": 1}}
    return groups


@pytest.fixture(scope="module")
def taken():
    return snapshot(nodes={f"n{number}": {"gpu": 8} for number in range(4)}, queues=QUEUES, groups=waiting())


def outcome(taken, **changes):
    """Return what was decided, in order, and why the others wait."""
    profile = default_profile_with()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, **changes))
    sink = RecordingSink()
    report = run_cycle(taken, profile, sink)
    return list(sink.decisions), {group: repr(record) for group, record in report.records.items()}


@pytest.mark.parametrize("changes", [{"shortcuts": False}, {"without": ("full-queues",)}], ids=["plain", "one by one"])
def test_full_queues_refuse_together_as_one_by_one(taken, changes):
    together = outcome(taken)
    assert together == outcome(taken, **changes)
    assert len(together[0]) > 10  # others are placed between those that are refused
    assert sum("OVER_LIMIT" in told for told in together[1].values()) >= 40
    assert sum("OVER_QUOTA" in told for told in together[1].values()) >= 30


def test_a_full_queue_words_few_refusals_one_by_one(taken, monkeypatch):
    asked = []
    in_words = fast_path.capacity_verdict

    def counted(session, portion, pods):
        asked.append(portion.group)
        return in_words(session, portion, pods)

    monkeypatch.setattr(fast_path, "capacity_verdict", counted)
    outcome(taken, without=("full-queues",))
    one_by_one = len(asked)
    asked.clear()
    outcome(taken)
    assert one_by_one > 60
    assert len(asked) < 40
