"""Claims about what ``kai diff`` says of two clusters: all that differs is told, and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from kai.answers.outcomes.plan import KINDS, digest_of, plan_of
from kai.cli.deciding.documents import document
from kai.lab.comparing.comparison import Side, compare_sides, side_of, side_of_document
from kai.lab.request import Result
from tests.truth.trial import Object, Trial

Claim = Callable[[Trial], Iterator[str]]
_BETTER = {"a": "b", "b": "a"}


def a_result_does_not_differ_from_itself(trial: Trial) -> Iterator[str]:
    """``nothing changes`` between a cluster and itself, and no job or figure beside its result that was saved."""
    side = _side(trial)
    written = document(Result(case=trial.outcome.case, outcome=trial.outcome), None)
    if not (found := compare_sides(side, side)).is_equal:
        yield f"{found}"
    # A saved result does not say all figures, so it is never said to be equal.
    found = compare_sides(side, side_of_document("saved", written))
    if found.jobs or found.first_divergence or any(each.change for each in found.metrics):
        yield f"{found}"


def what_changes_is_told_from_both_sides(trial: Trial) -> Iterator[str]:
    """From B to A the same changes as from A to B, turned round."""
    for other in _others(trial):
        there, back = compare_sides(_side(trial), _side(other)), compare_sides(_side(other), _side(trial))
        if [(each.job, each.a, each.b) for each in there.jobs] != [(each.job, each.b, each.a) for each in back.jobs]:
            yield f"jobs: {there.jobs} and {back.jobs}"
        figures = [
            (
                each.name,
                each.b,
                each.a,
                None if each.change is None else -each.change,
                _BETTER.get(each.better, each.better),
            )
            for each in there.metrics
        ]
        found = [(each.name, each.a, each.b, each.change, each.better) for each in back.metrics]
        if figures != found:
            yield f"figures: {there.metrics} and {back.metrics}"
        one, two = there.first_divergence, back.first_divergence
        if (one is None) != (two is None) or (
            one is not None and two is not None and (one.decision_a, one.decision_b) != (two.decision_b, two.decision_a)
        ):
            yield f"divergence: {one} and {two}"
        if there.is_equal != back.is_equal:
            yield f"equal {there.is_equal} and {back.is_equal}"


def what_differs_is_listed(trial: Trial) -> Iterator[str]:
    """A job is listed if, and only if, ``kai jobs`` shows another line of it; decisions differ as their hashes do."""
    for other in _others(trial):
        found = compare_sides(_side(trial), _side(other))
        mine, theirs = _lines(trial), _lines(other)
        differ = {key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)}
        listed = {each.job for each in found.jobs}
        for key in sorted(differ ^ listed):
            yield f"{key}: listed {key in listed}: {mine.get(key)} and {theirs.get(key)}"
        decided = _decided(trial) != _decided(other)
        if decided != (found.first_divergence is not None):
            yield f"decisions differ {decided}: {found.first_divergence}"


def _side(trial: Trial) -> Side:
    return side_of("side", trial.outcome, trial.seen)


def _decided(trial: Trial) -> str:
    """Return a digest of what is decided, whatever queue a job is in."""
    plan = plan_of(trial.outcome).document()
    return digest_of({kind: [{**each, "queue": ""} for each in plan[kind]] for kind in KINDS})


def _lines(trial: Trial) -> dict[str, object]:
    return {
        job.key: (
            str(job.state),
            job.nodes,
            job.placed,
            job.wanted,
            job.queue,
            job.waiting_reason and str(job.waiting_reason.code),
        )
        for job in trial.jobs.values()
    }


def _others(trial: Trial) -> Sequence[Trial]:
    """Return the trial with its first node cordoned, and with its last job in the queue of its first."""
    return trial.once("cordoned", lambda: _cordoned(trial)), trial.once("requeued", lambda: _requeued(trial))


def _cordoned(trial: Trial) -> Trial:
    first = trial.objects("Node")[0]["metadata"]["name"]

    def change(obj: Object) -> Object:
        if obj["kind"] != "Node" or obj["metadata"]["name"] != first:
            return obj
        return {**obj, "spec": {**obj["spec"], "unschedulable": True}}

    return trial.changed(change)


def _requeued(trial: Trial) -> Trial:
    groups = trial.objects("PodGroup")
    queue, last = groups[0]["spec"]["queue"], groups[-1]["metadata"]["name"]

    def change(obj: Object) -> Object:
        if obj["kind"] != "PodGroup" or obj["metadata"]["name"] != last:
            return obj
        new = deepcopy(dict(obj))
        new["spec"]["queue"] = queue
        return new

    return trial.changed(change)


DIFFERING: Sequence[Claim] = (
    a_result_does_not_differ_from_itself,
    what_changes_is_told_from_both_sides,
    what_differs_is_listed,
)
