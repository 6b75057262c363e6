import pytest

from kai.lab.virtual.scenes.annotations import Declared, Instant, Lognormal, Poisson, read_annotations
from kai.lab.virtual.scenes.from_manifests import read_workload
from kai.manifests import RefusedError, documents_of, open_text
from tests.unit.lab.virtual.builders import cluster, gang, job, scene_of


def declared(**annotations: str) -> Declared:
    (document,) = documents_of(*open_text(job("x", **annotations).encode(), "x.yaml"))
    found, findings = read_annotations(document)
    assert not findings
    return found


def test_every_form_is_read():
    assert declared(arrival="45m").arrival == 2700.0
    assert declared(arrival="2026-01-31T12:00:00Z").arrival == Instant(1769860800.0)
    assert declared(arrival="poisson(rate=4/h, count=20)").arrival == Poisson(900.0, 20)
    assert declared(duration="2h30m").duration == 9000.0
    assert declared(duration="lognormal(median=1h, p95=6h)").duration == Lognormal(3600.0, 21600.0)
    assert declared(replicas="0h:1, 1h:6, 8h:2").replicas == ((0.0, 1), (3600.0, 6), (28800.0, 2))
    both = declared(startup="5m", checkpoint_every="20m", fails_at="3h", restarts="2")
    assert (both.startup, both.checkpoint_every, both.fails_at, both.restarts) == (300.0, 1200.0, 10800.0, 2)


@pytest.mark.parametrize(
    ("annotation", "text", "code"),
    [
        ("arrival", "soon", "A001"),
        ("arrival", "poisson(rate=4)", "A001"),
        ("duration", "0s", "A001"),
        ("duration", "lognormal(median=2h, p95=1h)", "A001"),
        ("replicas", "1h:2, 0h:1", "A001"),
        ("restarts", "-1", "A001"),
        ("restarts", "9" * 5000, "A001"),
        ("replicas", f"0h:{'9' * 5000}", "A001"),
        ("arrival", f"poisson(rate=1/h, count={'9' * 5000})", "A001"),
        ("arrival", f"poisson(rate={'9' * 400}/h, count=2)", "A001"),
        ("arrival", "poisson(rate=0.0000001/w, count=2)", "A001"),
        ("arival", "1h", "A002"),
    ],
)
def test_a_mistake_has_its_place(annotation: str, text: str, code: str):
    with pytest.raises(RefusedError) as refused:
        scene_of(cluster() + job("x", **{annotation: text}))
    (finding,) = refused.value.findings
    assert (finding.code, finding.line > 0, text in finding.excerpt[-1][1]) == (code, True, True)


def test_a_mistake_is_quoted_as_it_is_written():
    with pytest.raises(RefusedError, match="restarts: found true, expected a string"):
        scene_of(cluster() + job("x", restarts="-").replace('"-"', "true"))


def said_of(text: str) -> list[str]:
    documents = documents_of(*open_text((cluster() + text).encode(), "case.yaml"))
    return [each.message for each in read_workload(documents, 0).findings if each.code == "A003"]


def test_useless_annotations_on_templates_and_pods_are_noted():
    line = "simulation.kai.scheduler/duration: 1h"
    template = job("x").replace("template:\n    metadata: {", f"template:\n    metadata: {{annotations: {{{line}}}, ")
    assert said_of(template) == ["duration of a part of a workload says nothing"]
    pods = gang("g", pods=3, gpus=1).replace("pod-group-name: g}", f"pod-group-name: g, {line}}}")
    assert said_of(pods) == ["duration of a part of a workload says nothing"]
    assert said_of(job("x", duration="1h") + gang("g", pods=3, gpus=1, duration="1h")) == []
