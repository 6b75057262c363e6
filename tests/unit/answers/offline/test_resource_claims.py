import attrs

from kai.actions.allocate import Allocate
from kai.answers.offline.cluster_reaction import claims_after
from kai.api.cluster_objects import collect
from kai.api.codec.structuring import structure_all
from kai.deciding.engine.cycle import Profile, run_cycle
from kai.facts.model.pod import Status
from kai.framework.decisions import Recorder
from kai.framework.hooks import PluginUse
from kai.intake import take_snapshot
from kai.plugins.dra import Dra
from kai.plugins.proportion import Proportion
from tests.unit.plugins.dra.manifests import CLASS, NODE, claim, claiming, offer
from tests.unit.plugins.stage import NOW, groups_of

PLUGINS = (PluginUse(name="dra", plugin=Dra()), PluginUse(name="proportion", plugin=Proportion()))


def after(*manifests, **statuses):
    """Return users and devices of each claim after a cycle; ``statuses`` replace how pods left it, by name."""
    everything = [NODE, CLASS, *manifests]
    objects = collect(structure_all(everything + groups_of(everything)).objects)
    snapshot = take_snapshot(objects, NOW)
    report = run_cycle(snapshot, Profile(actions=(Allocate(),), plugins=PLUGINS), Recorder())
    status = report.status.copy()
    for row, pod in enumerate(snapshot.pods):
        status[row] = statuses.get(pod.name.replace("-", "_"), status[row])
    claims = claims_after(objects.resource_claims, snapshot, attrs.evolve(report, status=status))
    return {
        each.metadata.name: (
            [user.uid for user in each.status.reserved_for],
            [device.device for device in each.status.allocation.devices.results] if each.status.allocation else None,
        )
        for each in claims
    }


def test_a_bound_pod_has_its_claim_allocated_and_reserved():
    assert after(offer("n1", "d0"), claim("c"), claiming("a-0", "c")) == {"c": (["default-a-0"], ["d0"])}


def test_a_promise_is_forgotten():
    found = after(offer("n1", "d0"), claim("c"), claiming("a-0", "c"), a_0=Status.PIPELINED)
    assert found == {"c": ([], None)}


def test_the_last_user_who_goes_gives_the_devices_back():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0", "default-b-0"])
    pods = [claiming(name, "c", on="n1") for name in ("a-0", "b-0")]
    slices = offer("n1", "d0")
    assert after(slices, held, *pods, a_0=Status.RELEASING) == {"c": (["default-b-0"], ["d0"])}
    assert after(slices, held, *pods, a_0=Status.RELEASING, b_0=Status.RELEASING) == {"c": ([], None)}


def test_users_beyond_the_snapshot_stay():
    held = claim("c", held=[("n1", "d0")], users=["somebody"])
    assert after(offer("n1", "d0"), held) == {"c": (["somebody"], ["d0"])}


def test_an_untouched_claim_stays_the_same_object():
    objects = collect(structure_all([NODE, CLASS, claim("c", held=[("n1", "d0")], users=["somebody"])]).objects)
    snapshot = take_snapshot(objects, NOW)
    report = run_cycle(snapshot, Profile(actions=(), plugins=PLUGINS), Recorder())
    assert claims_after(objects.resource_claims, snapshot, report)[0] is objects.resource_claims[0]
