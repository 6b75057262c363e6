import subprocess
import sys

import attrs
import pytest

from kai.basics.errors import InputError
from kai.framework import Objects
from kai.testing import cluster, default_profile_with, session_view, snapshot
from tests.doubles.own_kinds import declared_for_a_while

NODES = {"n1": {"gpu": 8}}
CAPS = Objects(
    api_version="power.example.com/v1",
    kind="RackPowerCap",
    plural="rackpowercaps",
    read=lambda raw: (raw.spec.get("watts"), dict(raw.labels), raw.status.get("phase", "")),
)
LIMITS = attrs.evolve(CAPS, kind="TeamLimit", plural="teamlimits", namespaced=True, read=lambda raw: raw.key)
CLASSES = Objects(
    api_version="storage.k8s.io/v1",
    kind="StorageClass",
    plural="storageclasses",
    read=lambda raw: raw.content["provisioner"],
)


@pytest.fixture
def own_kinds():
    with declared_for_a_while():
        yield


def test_a_cluster_is_written_in_the_words_of_scenarios():
    objects = cluster({"n1..n2": {"gpu": 8}}, {"g": {"members": 2}}, topologies={"t": ["rack"]})
    assert [node.metadata.name for node in objects.nodes] == ["n1", "n2"]
    assert [queue.metadata.name for queue in objects.queues] == ["root", "queue"]
    assert len(objects.pods) == 2
    assert objects.topologies[0].metadata.name == "t"


def test_without_queues_there_is_one_that_may_use_everything():
    taken = snapshot({"n1": {"gpu": 8}}, {"g": {}})
    assert taken.queues[taken.groups[0].queue_row].quota.gpu == -1.0


def test_a_wrong_key_is_named():
    with pytest.raises(InputError, match="did you mean members"):
        cluster({}, {"g": {"member": 2}})


@pytest.mark.usefixtures("own_kinds")
def test_a_test_cluster_has_the_objects_plugins_read():
    caps = {"b": {"spec": {"watts": 2000}, "labels": {"row": "1"}}, "a": {"status": {"phase": "New"}}}
    objects = {CAPS: caps, LIMITS: {"team/x": {}, "y": {}}, CLASSES: {"fast": {"provisioner": "csi"}}}
    view = session_view(NODES, objects=objects)
    assert dict(view.values(CAPS)) == {"a": (None, {}, "New"), "b": (2000, {"row": "1"}, "")}
    assert sorted(view.values(LIMITS).values()) == ["default/y", "team/x"]
    assert dict(view.values(CLASSES)) == {"fast": "csi"}


@pytest.mark.usefixtures("own_kinds")
def test_an_unknown_key_of_a_plugins_object_is_named():
    with pytest.raises(InputError) as caught:
        cluster(NODES, objects={CAPS: {"a": {"watts": 2000}}})
    known = "annotations, labels, spec, status"
    assert str(caught.value) == f"cluster: objects.RackPowerCap.a: found key 'watts'; known are {known}"


def test_a_plugin_can_stand_behind_the_built_in_ones():
    @attrs.frozen
    class Mine:
        def open(self, session):
            return ()

    assert default_profile_with(Mine()).plugins[-1].name == "Mine"


def test_plugins_are_tried_without_the_compiler():
    program = (
        "import sys\n"
        "from kai.plugins.scores import Binpack\n"
        "from kai.testing import check_plugin\n"
        "check_plugin(Binpack)\n"
        "print('numba' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "False\n"), ran.stderr
