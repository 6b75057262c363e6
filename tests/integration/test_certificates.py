"""The certificate of the webhooks on a real API server: made after installing, renewed under load.

The API server reaches the program as in a cluster: by the name of the Service, which the certificate must be for. There
is no network of Services here, so the Service stands for this machine.
"""

import itertools
import os
import sys
from contextlib import contextmanager

import pytest

from tests.integration.client import PATIENCE, Refused, until
from tests.integration.controlplane import Daemon
from tests.integration.installation import install
from tests.integration.ports import free_ports
from tests.integration.processes import await_ready, shown
from tests.integration.together import NAMESPACE, an_object
from tests.unit.deploy.rendering import DEPLOY, deployment, of_kind, render

SPACE = "default"
SECRET = an_object("v1", "Secret", "kai-webhooks", NAMESPACE)
HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
RENEWALS = int(os.environ.get("KAI_TEST_RENEWALS", "2"))
# A certificate is renewed after two thirds of its life: twice within a minute, on a machine that has time for it.
LIFETIME = "40s" if RENEWALS <= 2 else "20s"


def promoted(admin):
    return admin.get(SECRET)["metadata"].get("annotations", {}).get("kai.scheduler/certificate-promoted")


@contextmanager
def replica(plane, folder, name, port, lifetime):
    """Run the role admission as it is shipped."""
    metrics, probes = free_ports(2)
    config = plane.kubeconfig(plane.account(NAMESPACE, "admission"), name)
    (container,) = deployment(render(DEPLOY), "admission")["spec"]["template"]["spec"]["containers"]
    shipped = [each for each in container["args"] if "-address=" not in each and "-addr=" not in each]
    command = (
        *(sys.executable, "-m", "kai", *shipped, f"--kubeconfig={config}", f"--webhook-addr={port}"),
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
        f"--webhook-certificate-lifetime={lifetime}",
    )
    daemon = Daemon(command, folder / f"{name}.log")
    daemon.start()
    with shown(daemon):
        yield daemon, probes


@pytest.fixture
def port(bare_control_plane):
    """Install kai, with webhooks whose Service leads to a port of this machine; return the port."""
    admin = bare_control_plane.admin
    admin.delete(SECRET)  # the certificate of the test before may have long to live
    install(bare_control_plane, DEPLOY)
    admin.ensure(an_object("v1", "Namespace", SPACE))
    admin.ensure(an_object("node.k8s.io/v1", "RuntimeClass", "nvidia", handler="nvidia"))
    (found,) = free_ports(1)
    service = an_object("v1", "Service", "admission", NAMESPACE)
    admin.delete(service)
    admin.create({**service, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}})
    for kind in HOOKS:
        for manifest in of_kind(render(DEPLOY), kind):
            for hook in manifest["webhooks"]:
                hook["clientConfig"]["service"]["port"] = found
            admin.apply(manifest)
    return found


def shares(name):
    labels = {"kai.scheduler/queue": "team"}
    metadata = {"labels": labels, "annotations": {"gpu-fraction": "0.5"}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none"}]}
    return an_object("v1", "Pod", name, SPACE, metadata=metadata, spec=spec)


def is_reviewed(admin):
    """Return whether the webhook was asked and changed the pod; without an answer such a pod is refused."""
    try:
        made = admin.create(shares("probe"), dryRun="All")
    except Refused:
        return False
    return made["spec"].get("runtimeClassName") == "nvidia"


def test_shared_gpus_work_while_certificates_are_renewed(bare_control_plane, port, tmp_path):
    plane, admin = bare_control_plane, bare_control_plane.admin
    assert not is_reviewed(admin)
    with replica(plane, tmp_path, "admission", port, LIFETIME) as (daemon, probes):
        await_ready(daemon, probes, "admission")
        until(lambda: is_reviewed(admin), "the first review")
        seen = {promoted(admin)}
        authorities = {bundle(admin)}
        reviews = itertools.count()

        def has_renewed_often_enough():
            for _ in range(10 if RENEWALS <= 2 else 3):
                number = next(reviews)
                assert is_reviewed(admin), f"review {number} failed, after {len(seen) - 1} renewals"
            seen.add(promoted(admin))
            authorities.add(bundle(admin))
            return len(seen) > RENEWALS

        until(has_renewed_often_enough, f"{RENEWALS} renewals", seconds=RENEWALS * PATIENCE / 2)
        sys.stdout.write(f"{next(reviews)} reviews during {len(seen) - 1} renewals\n")
        assert len(authorities) >= 4  # one, both, the other, both again
        for kind in HOOKS:
            for manifest in admin.list("admissionregistration.k8s.io/v1", kind):
                assert manifest["webhooks"][0]["clientConfig"]["caBundle"]


def bundle(admin):
    return admin.get(SECRET)["data"]["ca.crt"]


def test_a_second_replica_takes_the_certificate_of_the_first(bare_control_plane, port, tmp_path):
    plane, admin = bare_control_plane, bare_control_plane.admin
    (other,) = free_ports(1)
    with replica(plane, tmp_path, "one", other, "2160h") as (one, first):
        await_ready(one, first, "one")
        before = admin.get(SECRET)["data"]
        with replica(plane, tmp_path, "two", port, "2160h") as (two, second):
            await_ready(two, second, "two")
            until(lambda: is_reviewed(admin), "a review by the second")
            assert admin.get(SECRET)["data"] == before


def test_admissions_account_reaches_no_other_secret_or_webhook(bare_control_plane, port):
    del port
    admission = bare_control_plane.account(NAMESPACE, "admission")
    admission.get(SECRET)
    other = an_object("v1", "Secret", "other", NAMESPACE)
    foreign = an_object("admissionregistration.k8s.io/v1", HOOKS[0], "foreign")
    tries = (
        lambda: admission.get(other),
        lambda: admission.create(other),
        lambda: admission.list("v1", "Secret", NAMESPACE),
        lambda: admission.delete(SECRET),
        lambda: admission.patch(foreign, {"webhooks": []}),
        lambda: admission.list("admissionregistration.k8s.io/v1", HOOKS[0]),
    )
    for attempt in tries:
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.code == 403
