"""A process that is told to end gives its lease back, also while a plugin computes for ever."""

import os
import signal

from tests.integration.behaviour import Job, Part
from tests.integration.client import until
from tests.integration.controlplane import DiedError
from tests.integration.installation import install
from tests.integration.processes import NAMESPACE
from tests.integration.stage import an_object, node, queue, scene, staged
from tests.integration.touchy import ENDLESS, LABEL, install_touchy
from tests.unit.deploy.rendering import DEPLOY


def has_ended(program):
    try:
        os.kill(program.daemon.pid, 0)
    except DiedError:
        return True
    return False


def test_an_endless_plugin_does_not_keep_the_lease(bare_control_plane, tmp_path):
    admin = bare_control_plane.admin
    install(bare_control_plane, DEPLOY)
    policy, variables = install_touchy(tmp_path / "plugin")
    lease = an_object("coordination.k8s.io/v1", "Lease", "kai-scheduler", metadata={"namespace": NAMESPACE})
    with staged(bare_control_plane, tmp_path) as stage:
        program = stage.start("kai", flags=(f"--config={policy}", "--leader-elect"), environment=variables)
        with scene(stage) as opened:
            opened.create(node("n1", gpu=8))
            opened.create(queue("team"))
            for manifest in Job(name="endless", part=Part(gpu=1)).manifests():
                manifest["metadata"].setdefault("labels", {})[LABEL] = ENDLESS
                opened.create(manifest)
            until(lambda: program.metric("kai_cycle_under_way_seconds") > 1.0, "the cycle to last")
            assert admin.get(lease)["spec"]["holderIdentity"]
            os.kill(program.daemon.pid, signal.SIGTERM)
            until(lambda: '"ending"' in stage.logs(), "the process to end what it does")
            os.kill(program.daemon.pid, signal.SIGTERM)  # as a kubelet does that was restarted meanwhile
            until(lambda: has_ended(program), "the process to end")
            assert not admin.get(lease)["spec"].get("holderIdentity")
            assert "touchy.filter_nodes" in stage.logs()
