"""Alibaba's openb traces: the nodes, and the pods of a workload in the order in which they are offered.

The files are read by kai's own reader of traces; here amounts become whole numbers. Pods that were never placed there
count as all others, and times do not.

Source: ``data/csv`` of the public repository hkust-adsl/kubernetes-scheduler-simulator.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np
from attrs import field, frozen
from attrs.validators import ge

from kai.basics.errors import KaiError
from kai.lab.traces.columns import formats
from kai.lab.traces.jobs import Demand, demand_of
from kai.lab.traces.rows import read_rows
from kai.lab.traces.trace_reading import read_nodes

NODES = "openb_node_list_gpu_node.csv"
GPU = 1000
"""Thousandths of a GPU."""


class UnreadableTraceError(Exception):
    """A file of a trace that is missing, or that says something else than expected."""


@frozen
class NodeShape:
    """A node of the cluster: thousandths of CPUs, MiB, and GPUs of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int = field(validator=ge(0))
    model: str


@frozen
class PodShape:
    """What a pod asks for: ``gpu_milli`` of each of ``gpus`` devices, of one of ``models`` (none: of any)."""

    cpu_milli: int
    memory_mib: int
    gpus: int = field(validator=ge(0))
    gpu_milli: int = field(validator=ge(0))
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        """Thousandths of GPUs."""
        return self.gpus * self.gpu_milli


@frozen
class Trace:
    """A cluster, and the pods of a workload."""

    workload: str
    nodes: tuple[NodeShape, ...]
    pods: tuple[PodShape, ...]

    @classmethod
    def read(cls, folder: Path, workload: str) -> Self:
        """Read a workload and the cluster from the CSV files in ``folder``.

        Raises: UnreadableTraceError.
        """
        pods = folder / f"openb_pod_list_{workload}.csv"
        return cls(workload, tuple(_nodes(folder / NODES)), tuple(_pods(pods)))

    @property
    def capacity(self) -> int:
        """Thousandths of GPUs that the cluster has."""
        return GPU * sum(node.gpus for node in self.nodes)

    def arrivals(self, seed: int, share: float) -> list[PodShape]:
        """Return the pods in random order, and further ones drawn of them, until ``share`` of the GPUs is asked for."""
        random = np.random.default_rng(seed)
        drawn, asked, out = list(random.permutation(len(self.pods))), 0, list[PodShape]()
        while asked < share * self.capacity:
            pod = self.pods[drawn[len(out)] if len(out) < len(drawn) else int(random.integers(len(self.pods)))]
            out.append(pod)
            asked += pod.demand
        return out


def _nodes(path: Path) -> Iterator[NodeShape]:
    try:
        for node in read_nodes(str(path)):
            yield NodeShape(node.name, round(node.cpus * 1000), round(node.memory_mib), node.gpus, node.model)
    except (KaiError, ValueError) as error:
        raise UnreadableTraceError(f"expected nodes: {error}") from error


def _pods(path: Path) -> Iterator[PodShape]:
    form = next(each for each in formats() if each.name == "openb")
    try:
        for line, row in read_rows(str(path))[1]:
            with _named(f"{path}:{line}"):
                yield _pod(demand_of(row, form))
    except KaiError as error:
        raise UnreadableTraceError(f"expected pods: {error}") from error


@contextmanager
def _named(place: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UnreadableTraceError(f"{place}: expected a pod: {error}") from error


def _pod(demand: Demand) -> PodShape:
    """Return a demand in whole numbers, which add up the same in any order."""
    if demand.cpus is None or demand.memory_mib is None:
        raise ValueError("found no amount of CPU or memory")
    amounts = round(demand.cpus * 1000), round(demand.memory_mib)
    if demand.share is not None:
        return PodShape(*amounts, 1, round(demand.share * GPU), demand.models)
    return PodShape(*amounts, demand.gpus, GPU if demand.gpus else 0, demand.models)
