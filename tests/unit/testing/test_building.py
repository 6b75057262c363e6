import subprocess
import sys

import attrs
import pytest

from kai.errors import InputError
from kai.testing import cluster, default_profile_with, snapshot


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


def test_a_plugin_can_stand_behind_the_built_in_ones():
    @attrs.frozen
    class Mine:
        def open(self, session):
            return ()

    assert default_profile_with(Mine()).plugins[-1].name == "Mine"


def test_plugins_are_tried_without_the_compiler():
    program = (
        "import sys\n"
        "from kai.plugins.binpack import Binpack\n"
        "from kai.testing import check_plugin\n"
        "check_plugin(Binpack)\n"
        "print('numba' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "False\n"), ran.stderr
