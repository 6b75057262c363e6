"""Rows of traces as jobs, and rows of node files as nodes. This module does not depend on Kubernetes objects."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.conventions.gpu_sharing import LEAST_SHARE
from kai.basics.parsing import LONGEST
from kai.lab.traces.columns import Format, Row, RowError, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PODS: Final = 100_000
"""The most pods of one job, since they are created one by one."""
_MOST: Final = {"gpus": 65_535, "cpus": 1 << 28, "memory_mib": 1 << 28, "share": 65_535, "shards": 1 << 28}
"""Limits beyond any machine: a larger amount is a mistake, and would not fit into 64 bits."""


@attrs.frozen(kw_only=True)
class Demand:
    """A number of equal pods, and the request of each."""

    pods: int = 1
    gpus: int = 0
    share: float | None = None
    """The fraction of one GPU; None for whole GPUs."""
    shards: float = 0.0
    """Shards of a GPU, where the trace does not say how many make a whole one."""
    cpus: float | None = None
    memory_mib: float | None = None
    models: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    """The trace's name of the GPU model: words such as a100."""


@attrs.frozen(kw_only=True)
class TraceJob:
    """A job of a trace. Units: seconds."""

    line: int
    name: str
    arrival: float
    start: float | None = None
    """When it started in the recorded cluster; None if the trace does not say."""
    duration: float | None
    parts: tuple[Demand, ...]
    """Its pods, equal ones grouped."""
    minimum: int
    queue: str
    user: str
    priority: str
    preemptible: bool | None

    @property
    def pods(self) -> int:
        """Total number of pods."""
        return sum(part.pods for part in self.parts)


@attrs.frozen(kw_only=True)
class TraceNode:
    """A node of a trace."""

    name: str
    gpus: int
    cpus: float
    memory_mib: float
    model: str


def job_of(row: Row, line: int, form: Format) -> TraceJob:
    """Return the job in a row.

    Raises: RowError for a row that is no valid job.
    """
    rules = form.job
    arrival = _value(rules, "arrival", row)
    column = rules["arrival"].of(row).column
    if arrival is None or arrival < 0:
        found = "empty" if arrival is None else f"{arrival:g} s"
        raise RowError(f"{column} is {found}, expected when the job arrived, 0 or more")
    arrival = max(arrival, _value(rules, "eligible", row, arrival))
    _refuse_longer(column, arrival)
    parts = demands_of(row, form)
    for part in parts:
        _refuse_less(rules, row, part)
    pods = sum(part.pods for part in parts)
    minimum = _value(rules, "minimum", row, pods)
    if not 0 <= minimum <= pods:
        named = rules["minimum"].of(row).column
        raise RowError(f"{named} is {minimum}, expected at most the number of pods, {pods}")
    return TraceJob(
        line=line,
        name=_value(rules, "name", row, f"job-{line}"),
        arrival=arrival,
        start=_value(rules, "start", row),
        duration=_duration(rules, row),
        parts=parts,
        minimum=minimum,
        queue=_value(rules, "queue", row, ""),
        user=_value(rules, "user", row, ""),
        priority=_value(rules, "priority", row, ""),
        preemptible=_value(rules, "preemptible", row),
    )


def demand_of(row: Row, form: Format) -> Demand:
    """Return the request of each pod of a row whose pods are all equal.

    Raises: RowError for an impossible request.
    """
    return demands_of(row, form)[0]


def demands_of(row: Row, form: Format) -> tuple[Demand, ...]:
    """Return the requests of a row, equal pods grouped, whether and whenever the job ran.

    Raises: RowError for an impossible request.
    """
    rules = form.job
    pods = _value(rules, "pods", row, 1)
    if pods < 1:
        raise RowError(f"{rules['pods'].of(row).column} is {pods}, expected at least 1")
    if pods > MOST_PODS:
        raise RowError(f"{rules['pods'].of(row).column} is {pods:g}, expected at most {MOST_PODS:,}")
    each = Demand(
        pods=pods,
        cpus=_each(rules, "cpus", row, pods),
        memory_mib=_each(rules, "memory_mib", row, pods),
        models=_value(rules, "models", row, ()),
        types=_value(rules, "types", row, ()),
    )
    total = _bounded(rules, "all_gpus", row, pods) if "all_gpus" in rules else None
    if total and total == int(total) and pods > 1:
        least, more = divmod(int(total), pods)  # as even as whole GPUs can be: Slurm places 5 on 2 nodes as 3 and 2
        parts = ((more, least + 1), (pods - more, least))
        return tuple(attrs.evolve(each, pods=count, gpus=gpus) for count, gpus in parts if count)
    gpus, share = _gpus(rules, row, pods)
    shards = 0.0 if gpus or share else (_bounded(rules, "all_shards", row, pods) or 0.0) / pods
    return (attrs.evolve(each, gpus=gpus, share=share, shards=shards),)


def node_of(row: Row, line: int, form: Format) -> TraceNode:
    """Return the node in a row.

    Raises: RowError for a row that is no valid node.
    """
    rules = form.nodes
    return TraceNode(
        name=_value(rules, "name", row, f"node-{line}"),
        gpus=_bounded(rules, "gpus", row, default=0),
        cpus=_bounded(rules, "cpus", row, default=128.0),
        memory_mib=_bounded(rules, "memory_mib", row, default=float(1 << 20)),
        model=_value(rules, "model", row, ""),
    )


def _value(rules: Mapping[str, Rule], name: str, row: Row, default: Any = None) -> Any:  # noqa: ANN401 - see Rule.read
    rule = rules.get(name)
    found = None if rule is None else rule.read(row)
    return default if found is None else found


def _duration(rules: Mapping[str, Rule], row: Row) -> float | None:
    found: float | None = _value(rules, "duration", row)
    if found is None and "end" in rules and "start" in rules:
        return _between(rules, row)
    if found is None:
        return None
    column = rules["duration"].of(row).column
    if found < 0:
        raise RowError(f"duration is {found:g} (column {column} is negative)")
    found += _value(rules, "suspended", row, 0.0)
    _refuse_longer(column, found)
    return found


def _between(rules: Mapping[str, Rule], row: Row) -> float:
    start, end = _value(rules, "start", row), _value(rules, "end", row)
    if start is None or end is None:
        missing = "start" if start is None else "end"
        raise RowError(f"{rules[missing].of(row).column} is empty, so its duration is not known")
    if end < start:
        said = f"column {rules['end'].column} is before {rules['start'].column}"
        raise RowError(f"duration is {end - start:g} ({said})")
    _refuse_longer(f"{rules['end'].column} after {rules['start'].column}", end - start)
    return float(end - start)


def _refuse_longer(what: str, seconds: float) -> None:
    """Refuse durations longer than the format of durations allows; dates would overflow, too."""
    if seconds > LONGEST:
        raise RowError(f"{what} is {seconds:g} s, expected at most 292 years")


def _gpus(rules: Mapping[str, Rule], row: Row, pods: int) -> tuple[int, float | None]:
    """Return the whole GPUs of each pod, and the fraction of one GPU."""
    asked = _each(rules, "gpus", row, pods) or 0.0
    column = rules["all_gpus" if "all_gpus" in rules else "gpus"].of(row).column
    share = _value(rules, "share", row)
    if share is not None and rules["share"].where_gpus not in {None, asked}:
        share = None
    if share is not None and not 0 <= share <= 1:
        raise RowError(f"{rules['share'].column} is {share:g}, expected a part of one GPU")
    if share and asked not in {0, 1}:
        found = f"{rules['share'].column} is {share:g} beside {asked:g} of {column}"
        raise RowError(f"{found}, expected a part of one GPU or whole ones")
    if share is None and not asked:
        share = (_bounded(rules, "all_share", row, pods) or 0.0) / pods
        if share > 1:
            return ceil(share), None
    if share and share < 1:
        return 0, float(share)
    asked = asked or float(share or 0)  # a share of 1 is a whole GPU
    if asked < 0 or asked != int(asked):
        if 0 < asked < 1:
            return 0, float(asked)
        raise RowError(f"{column} gives {asked:g} GPUs to each of {pods} pods, expected a whole number")
    return int(asked), None


def _refuse_less(rules: Mapping[str, Rule], row: Row, demand: Demand) -> None:
    """Check the fraction of a GPU.

    Raises: RowError for less than the annotation of a pod allows: its pods would wait forever.
    """
    if demand.share is None or demand.share >= LEAST_SHARE:
        return
    if _value(rules, "share", row) == demand.share:
        found = f"{rules['share'].column} is {demand.share:g}"
    else:
        column = rules["all_gpus" if "all_gpus" in rules else "gpus"].of(row).column
        found = f"{column} gives {demand.share:g} of a GPU to each of {demand.pods} pods"
    raise RowError(f"{found}, expected at least {LEAST_SHARE:g}")


def _each(rules: Mapping[str, Rule], name: str, row: Row, pods: int) -> float | None:
    """Return the amount of each pod; the trace has either that or the total of all pods."""
    if f"all_{name}" in rules:
        found = _bounded(rules, f"all_{name}", row, pods)
        return None if found is None else found / pods
    found = _bounded(rules, name, row)
    return None if found is None else float(found)


def _bounded(rules: Mapping[str, Rule], name: str, row: Row, pods: int = 1, default: Any = None) -> Any:  # noqa: ANN401 - see Rule.read
    """Return an amount within the limits of a machine, or ``default``.

    Raises: RowError for an amount beyond the limits.
    """
    found = _value(rules, name, row, default)
    most = _MOST[name.removeprefix("all_")] * pods
    if found is not None and not 0 <= found <= most:
        raise RowError(f"{rules[name].of(row).column} gives {found:g}, expected 0 to {most:,}")
    return found
