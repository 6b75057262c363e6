"""One row of a trace as a job, and one row of a file of nodes as a node. Nothing here knows of Kubernetes' objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.api.conventions.gpu_sharing import LEAST_SHARE
from kai.durations import LONGEST
from kai.traces.columns import Format, Row, RowError, Rule

MOST_PODS: Final = 100_000
"""Of one job: its pods are made one by one."""
_MOST: Final = {"gpus": 65_535, "cpus": 1 << 28, "memory_mib": 1 << 28}
"""More than any machine has: what is larger is a slip, and its amounts would not fit into 64 bits."""


@attrs.frozen(kw_only=True)
class Demand:
    """How many pods there are, and what each of them asks for."""

    pods: int = 1
    gpus: int = 0
    share: float | None = None
    """The part of one GPU; None for whole ones."""
    cpus: float | None = None
    memory_mib: float | None = None
    models: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TraceJob(Demand):
    """A job of a trace. Units: seconds."""

    line: int
    name: str
    arrival: float
    duration: float | None
    minimum: int
    queue: str
    user: str
    priority: str
    preemptible: bool | None


@attrs.frozen(kw_only=True)
class TraceNode:
    """A node of a trace."""

    name: str
    gpus: int
    cpus: float
    memory_mib: float
    model: str


def job_of(row: Row, line: int, form: Format) -> TraceJob:
    """Return the job that a row describes.

    Raises: RowError for a row that describes none.
    """
    rules = form.job
    arrival = _value(rules, "arrival", row)
    if arrival is None or arrival < 0:
        found = "empty" if arrival is None else f"{arrival:g} s"
        raise RowError(f"{rules['arrival'].column} is {found}, expected when the job arrived, 0 or more")
    _refuse_longer(rules["arrival"].column, arrival)
    demand = demand_of(row, form)
    _refuse_less(rules, row, demand)
    minimum = _value(rules, "minimum", row, demand.pods)
    if not 0 <= minimum <= demand.pods:
        raise RowError(f"{rules['minimum'].column} is {minimum}, expected at most the number of pods, {demand.pods}")
    return TraceJob(
        line=line,
        name=_value(rules, "name", row, f"job-{line}"),
        arrival=arrival,
        duration=_duration(rules, row),
        pods=demand.pods,
        gpus=demand.gpus,
        share=demand.share,
        cpus=demand.cpus,
        memory_mib=demand.memory_mib,
        models=demand.models,
        minimum=minimum,
        queue=_value(rules, "queue", row, ""),
        user=_value(rules, "user", row, ""),
        priority=_value(rules, "priority", row, ""),
        preemptible=_value(rules, "preemptible", row),
    )


def demand_of(row: Row, form: Format) -> Demand:
    """Return what a row asks for, whether and whenever it ran.

    Raises: RowError for a row that asks for nothing that could be.
    """
    rules = form.job
    pods = _value(rules, "pods", row, 1)
    if pods < 1:
        raise RowError(f"{rules['pods'].column} is {pods}, expected at least 1")
    if pods > MOST_PODS:
        raise RowError(f"{rules['pods'].column} is {pods:g}, expected at most {MOST_PODS:,}")
    gpus, share = _gpus(rules, row, pods)
    return Demand(
        pods=pods,
        gpus=gpus,
        share=share,
        cpus=_each(rules, "cpus", row, pods),
        memory_mib=_each(rules, "memory_mib", row, pods),
        models=_value(rules, "models", row, ()),
    )


def node_of(row: Row, line: int, form: Format) -> TraceNode:
    """Return the node that a row describes.

    Raises: RowError for a row that describes none.
    """
    rules = form.nodes
    return TraceNode(
        name=_value(rules, "name", row, f"node-{line}"),
        gpus=_bounded(rules, "gpus", _value(rules, "gpus", row, 0)),
        cpus=_bounded(rules, "cpus", _value(rules, "cpus", row, 128.0)),
        memory_mib=_bounded(rules, "memory_mib", _value(rules, "memory_mib", row, float(1 << 20))),
        model=_value(rules, "model", row, ""),
    )


def _value(rules: Mapping[str, Rule], name: str, row: Row, default: Any = None) -> Any:  # noqa: ANN401 - see Rule.read
    rule = rules.get(name)
    found = None if rule is None else rule.read(row)
    return default if found is None else found


def _duration(rules: Mapping[str, Rule], row: Row) -> float | None:
    if "duration" in rules:
        found: float | None = _value(rules, "duration", row)
        if found is not None and found < 0:
            raise RowError(f"duration is {found:g} (column {rules['duration'].column} is negative)")
        _refuse_longer(rules["duration"].column, found or 0.0)
        return found
    start, end = _value(rules, "start", row), _value(rules, "end", row)
    if start is None or end is None:
        missing = "start" if start is None else "end"
        raise RowError(f"{rules[missing].column} is empty, so its duration is not known")
    if end < start:
        said = f"column {rules['end'].column} is before {rules['start'].column}"
        raise RowError(f"duration is {end - start:g} ({said})")
    _refuse_longer(f"{rules['end'].column} after {rules['start'].column}", end - start)
    return float(end - start)


def _refuse_longer(what: str, seconds: float) -> None:
    """Refuse more seconds than a duration may have elsewhere: times of the calendar end, too."""
    if seconds > LONGEST:
        raise RowError(f"{what} is {seconds:g} s, expected at most 292 years")


def _gpus(rules: Mapping[str, Rule], row: Row, pods: int) -> tuple[int, float | None]:
    """Return the GPUs of each pod, and the part of one that it asks for."""
    asked = _each(rules, "gpus", row, pods) or 0.0
    column = rules["all_gpus" if "all_gpus" in rules else "gpus"].column
    share = _value(rules, "share", row)
    if share is not None and rules["share"].where_gpus not in {None, asked}:
        share = None
    if share is not None and not 0 <= share <= 1:
        raise RowError(f"{rules['share'].column} is {share:g}, expected a part of one GPU")
    if share and asked not in {0, 1}:
        told = f"{rules['share'].column} is {share:g} beside {asked:g} of {column}"
        raise RowError(f"{told}, expected a part of one GPU or whole ones")
    if share and share < 1:
        return 0, float(share)
    asked = asked or float(share or 0)  # all of one GPU is a whole one
    if asked < 0 or asked != int(asked):
        if 0 < asked < 1:
            return 0, float(asked)
        raise RowError(f"{column} gives {asked:g} GPUs to each of {pods} pods, expected a whole number")
    return int(asked), None


def _refuse_less(rules: Mapping[str, Rule], row: Row, demand: Demand) -> None:
    """Check a part of a GPU.

    Raises: RowError for less than the annotation of a pod may say: its pods would wait for ever.
    """
    if demand.share is None or demand.share >= LEAST_SHARE:
        return
    if _value(rules, "share", row) == demand.share:
        told = f"{rules['share'].column} is {demand.share:g}"
    else:
        column = rules["all_gpus" if "all_gpus" in rules else "gpus"].column
        told = f"{column} gives {demand.share:g} of a GPU to each of {demand.pods} pods"
    raise RowError(f"{told}, expected at least {LEAST_SHARE:g}")


def _each(rules: Mapping[str, Rule], name: str, row: Row, pods: int) -> float | None:
    """Return an amount of each pod: told for each, or for all of them."""
    if f"all_{name}" in rules:
        found = _bounded(rules, f"all_{name}", _value(rules, f"all_{name}", row), pods)
        return None if found is None else found / pods
    found = _bounded(rules, name, _value(rules, name, row))
    return None if found is None else float(found)


def _bounded(rules: Mapping[str, Rule], name: str, found: Any, pods: int = 1) -> Any:  # noqa: ANN401 - see Rule.read
    """Return an amount that a machine may have, or None.

    Raises: RowError for any other.
    """
    most = _MOST[name.removeprefix("all_")] * pods
    if found is not None and not 0 <= found <= most:
        raise RowError(f"{rules[name].column} gives {found:g}, expected 0 to {most:,}")
    return found
