"""An hour in virtual time, and the same on a real API server with all of kai: both decide the same.

The simulation leads: what happens at an instant happens in both clusters, then both decide, and only when the real one
has come to rest as the simulation says does the clock move on. So no time is measured, and an instant of the simulation
lasts as long as it has to.
"""

from contextlib import suppress
from math import inf
from pathlib import Path

import attrs
import pytest

from kai.cluster.process.decisions import BIND, EVICT, read_decisions
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.lab.virtual.running.simulation import Simulation
from kai.lab.virtual.scenes.loading import load
from tests.integration.client import until
from tests.integration.installation import install
from tests.integration.mirror import Mirror
from tests.integration.processes import frozen
from tests.integration.stage import staged
from tests.unit.deploy.rendering import DEPLOY

HERE = Path(__file__).parent / "reality"
HOUR = 3600.0
# Time passes in one cluster only, so nothing may happen for the mere passing of time.
WITHOUT_STALENESS = "--default-staleness-grace-period=-1s"


@pytest.fixture
def stage(bare_control_plane, tmp_path):
    """Run all of kai; pods that are told to go stay as long as the simulation has them stay."""
    install(bare_control_plane, DEPLOY / "base")
    with staged(bare_control_plane, tmp_path) as stage:
        stage.kubelet.lingers = True
        stage.start("kai", flags=(WITHOUT_STALENESS, f"--decision-log={tmp_path / 'decisions.jsonl'}"))
        yield stage


def hour():
    """Return the hour as a simulation that has not begun."""
    scene = load(str(HERE / "workload.yaml"), str(HERE / "cluster.yaml"), until=HOUR).scene
    known = default_configuration()
    patient = attrs.evolve(known, parameters=attrs.evolve(known.parameters, default_staleness_grace_seconds=-1.0))
    return scene, Simulation(scene, make_profile(patient), scene.settings, HOUR)


def test_simulated_and_real_hours_have_equal_decisions(stage, tmp_path):
    scene, simulation = hour()
    mirror = Mirror(stage.api, simulation.cluster, simulation.workloads)
    mirror.begin(scene.objects)
    simulation.begin()
    while simulation.next < inf:
        simulation.happen()
        with frozen(*stage.programs):
            is_changed = mirror.show()
        simulation.decide()
        with suppress(TimeoutError):
            until(lambda: not difference(mirror), "the same places")
        if is_changed:
            stage.settle()
        assert not difference(mirror), f"at {simulation.now:g}s"
    run = simulation.finish(HOUR)
    assert decided(tmp_path / "decisions.jsonl") == [*map(without_place, simulated(run))]


def difference(mirror):
    """Return the pods that are in different places: where they really are, and where the simulation has them."""
    seen, wanted = mirror.seen(), mirror.wanted()
    return {key: (seen.get(key), wanted.get(key)) for key in seen | wanted if seen.get(key) != wanted.get(key)}


def simulated(run):
    """Return the bindings and evictions of a run in their order."""
    return [text for _, _, text in run.first if not text.startswith("promise")]


def without_place(text):
    """Return a decision without the node that an evicted pod is on, which the log of a scheduler does not tell."""
    verb, pod, node, *rest = text.split()
    return " ".join([verb, pod, *rest] if verb == "evict" else [verb, pod, node])


def decided(path):
    """Return what the scheduler decided, in the words of a simulation."""
    found = []
    for each in read_decisions(str(path)):
        pod = f"{each.subject.namespace}/{each.subject.name}"
        if each.kind == BIND:
            found.append(f"bind {pod} {each.node}")
        elif each.kind == EVICT:
            gains = "-" if each.gainer is None else f"{each.gainer.namespace}/{each.gainer.name}"
            found.append(f"evict {pod} {each.action} {gains}")
    return found
