from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.truth import __main__ as command
from tests.truth.caps import CAPS
from tests.truth.claims import CLAIMS
from tests.truth.differing import DIFFERING
from tests.truth.rich import rich
from tests.truth.shares import SHARES
from tests.truth.tables import TABLES
from tests.truth.trial import Trial, patched

EXAMPLES = settings.default.max_examples
"""Of the profile. A trial decides its cluster some fifty times."""
_MOST_PODS = 80
"""With 122 pods one trial took two minutes; ``python -m tests.truth`` makes trials of any size."""


def is_small(seed):
    return len(Trial.of_seed(seed).objects("Pod")) <= _MOST_PODS


def untruths(trial):
    return [
        f"{claim.__name__}: {text}" for claim in (*CLAIMS, *SHARES, *CAPS, *DIFFERING, *TABLES) for text in claim(trial)
    ]


@settings(max_examples=max(2, EXAMPLES // 50))
@given(st.integers(0, 100_000).filter(is_small))
@example(23)
@example(26)
@example(226)
def test_explanations_of_waiting_jobs_are_true_in_any_cluster(seed):
    assert untruths(Trial.of_seed(seed)) == []


@settings(max_examples=max(5, EXAMPLES // 20))
@given(rich())
def test_explanations_of_waiting_jobs_hold_where_rules_meet(trial):
    assert untruths(trial) == []


def test_a_claim_that_is_not_so_is_found():
    trial = Trial.of_seed(2)
    job = next(
        job for job in trial.jobs.values() if job.waiting_reason is not None and job.waiting_reason.code == "NoRoom"
    )
    object.__setattr__(job.waiting_reason, "text", "no node that it may use has 1 GPU idle; 900 idle in all")
    assert any("900 idle in all, and" in text for text in untruths(trial))


def test_the_command_says_what_it_looked_at(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["truth", "--seeds", "11..12"])
    assert command.main() == 0
    told = capsys.readouterr().out
    assert "jobs wait: {" in told
    assert told.endswith("untruths: {}\n")


def test_patches_are_applied_as_they_are_written():
    operations = [
        {"op": "replace", "path": "/spec/a~1b", "value": 2},
        {"op": "add", "path": "/spec/list/-", "value": 3},
        {"op": "remove", "path": "/spec/gone"},
    ]
    assert patched({"spec": {"a/b": 1, "list": [1], "gone": 0}}, operations) == {"spec": {"a/b": 2, "list": [1, 3]}}
    assert patched({"spec": {}}, [{"op": "remove", "path": ""}]) is None
