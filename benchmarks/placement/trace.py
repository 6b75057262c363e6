"""Alibaba's openb traces: the nodes, and the pods of a workload in the order in which they are offered.

Source: ``data/csv`` of the public repository hkust-adsl/kubernetes-scheduler-simulator.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
from attrs import field, frozen
from attrs.validators import ge

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


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise UnreadableTraceError(f"{path}: {error.strerror}") from error


def _nodes(path: Path) -> Iterator[NodeShape]:
    for row in _rows(path):
        try:
            amounts = int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"])
            yield NodeShape(row["sn"], *amounts, row["model"])
        except (KeyError, ValueError) as error:
            raise UnreadableTraceError(f"{path}: found {row}, expected a node: {error}") from error


def _pods(path: Path) -> Iterator[PodShape]:
    for row in _rows(path):
        try:
            gpus, share = int(row["num_gpu"]), int(row["gpu_milli"] or 0)
            models = tuple((row.get("gpu_spec") or "").split("|")) if row.get("gpu_spec") else ()
            yield PodShape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, share if gpus else 0, models)
        except (KeyError, ValueError) as error:
            raise UnreadableTraceError(f"{path}: found {row}, expected a pod: {error}") from error
