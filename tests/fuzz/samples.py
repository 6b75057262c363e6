"""Valid samples, from the cases and scenarios of the other tests: what a decoder reads when nothing is wrong."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final

from kai.api.codec.manifest_text import load_values
from kai.api.codec.structuring import kind_of, unstructure
from kai.lab.scenarios.scenario import read_scenario

ROOT: Final = Path(__file__).parents[1]
EACH: Final = 2
"""Cases of each family."""


@functools.cache
def manifests() -> dict[str, tuple[dict[str, Any], ...]]:
    """Return different manifests of each kind, as JSON values."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for document in cases():
        for manifest in document.get("objects", ()):
            if kind_of(manifest) is not None:
                _keep(found, manifest)
    for path in sorted((ROOT / "scenarios").glob("*/*.yaml")):
        for document in load_values(path.read_bytes(), path.name):
            objects = read_scenario(document, path.name).objects
            for each in (one for field in type(objects).__attrs_attrs__ for one in getattr(objects, field.name)):
                _keep(found, unstructure(each))
    return {kind: tuple(known.values()) for kind, known in sorted(found.items())}


def _keep(found: dict[str, dict[str, dict[str, Any]]], manifest: dict[str, Any]) -> None:
    """Keep one manifest of each form: what keys it has, not what they hold."""
    found.setdefault(manifest["kind"], {}).setdefault(_form(manifest), manifest)


def _form(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_form(inner)}" for key, inner in sorted(value.items())) + "}"
    return "[" + "".join(sorted({_form(each) for each in value})) + "]" if isinstance(value, list) else ""


@functools.cache
def cases(kind: str = "scheduling") -> tuple[dict[str, Any], ...]:
    """Return some cases of a kind, of each family."""
    found: list[dict[str, Any]] = []
    for family in sorted((ROOT / "conformance" / "cases").iterdir()):
        count = EACH if kind in {"scheduling", "podgrouping"} else EACH * 10
        for path in sorted(family.glob("*.yaml"))[:count]:
            text = path.read_bytes()
            if kind != "scheduling" and f"kind: {kind}\n".encode() not in text[:4000]:
                break
            (case,) = load_values(text, path.name)
            if case.get("kind", "scheduling") != kind:
                break
            found.append(json.loads(json.dumps({key: each for key, each in case.items() if key != "expected"})))
    return tuple(found)


@functools.cache
def kartas() -> tuple[dict[str, Any], ...]:
    """Return Kartas."""
    objects = (each for case in cases("podgrouping") for each in case.get("objects", ()))
    return tuple(each for each in objects if each.get("kind") == "Karta")


@functools.cache
def workloads() -> tuple[dict[str, Any], ...]:
    """Return manifests of workloads with what they say about their run, in a list with a node and a queue."""
    told = {"arrival": "10m", "duration": "lognormal(median=1h, p95=6h)", "fails-at": "10m"}
    more = {"replicas": "0s:1, 1h:3", "duration": "2h", "restarts": "2", "checkpoint-every": "10m", "startup": "30s"}
    amounts = {"requests": {"nvidia.com/gpu": "1", "cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    pod = {"schedulerName": "kai-scheduler", "containers": [{"name": "m", "image": "m", "resources": amounts}]}
    queue = {"kai.scheduler/queue": "q"}
    template = {"spec": {**pod, "restartPolicy": "Never"}, "metadata": {"labels": queue}}
    job = {"template": template, "parallelism": 2, "completions": 4}
    kinds = (
        ("batch/v1", "Job", job, told),
        ("batch/v1", "CronJob", {"schedule": "0 * * * *", "jobTemplate": {"spec": job}}, {"duration": "5m"}),
        (
            "apps/v1",
            "Deployment",
            {"replicas": 2, "template": {**template, "spec": pod}, "selector": {"matchLabels": queue}},
            more,
        ),
    )
    node = {"allocatable": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}}
    share = {"quota": 8, "limit": -1}
    shares = {"resources": {"gpu": share, "cpu": share, "memory": share}}
    around = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": node},
        {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": shares},
    ]
    found = []
    for version, kind, spec, said in kinds:
        annotations = {f"simulation.kai.scheduler/{key}": text for key, text in said.items()}
        metadata = {"name": "w", "namespace": "default", "annotations": annotations, "labels": queue}
        work = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        found.append({"apiVersion": "v1", "kind": "List", "items": [*around, work]})
    return tuple(found)


@functools.cache
def results() -> tuple[dict[str, Any], ...]:
    """Return the result of a short run."""
    from kai.lab.virtual.results.documents import document_of
    from kai.lab.virtual.results.metrics import result_of
    from kai.lab.virtual.running.simulation import run
    from tests.unit.lab.virtual.builders import job, scene_of

    found = document_of(result_of(run(scene_of(job("a", 1, duration="1h")), until=7200.0)))
    return (_trimmed(json.loads(json.dumps(found))),)


def _trimmed(value: Any) -> Any:
    """Return a value with the first two of each list."""
    if isinstance(value, dict):
        return {key: _trimmed(inner) for key, inner in value.items()}
    return [_trimmed(each) for each in value[:2]] if isinstance(value, list) else value
