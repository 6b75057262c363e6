"""Replicas that renew the certificate of the webhooks together, in virtual time."""

import base64
import copy
import random

import anyio
import pytest
from structlog.testing import capture_logs

from kai.api.plans import Reason, Refusal
from kai.basics.errors import ConfigError
from kai.cluster.requests import Fetch, Forbidden
from kai.cluster.signals import CertificateUsed
from kai.roles.admission.certificates import end_of, split
from kai.roles.admission.rotation import CONFIGURATIONS, RotatedCertificate, Rotation, Timing
from tests.doubles.merge_patch import merged
from tests.doubles.virtual_time import VirtualClock, run

SPACE, NAME = "kai-scheduler", "kai-webhooks"
HOSTS = ("admission.kai-scheduler.svc",)
TIMING = Timing(lifetime=6000.0)
SECRET = ("Secret", NAME)


class Server:
    """Keeps manifests and refuses patches of another version; answers take a drawn time, before and after the act."""

    def __init__(self, *, seed=0, latency=0.0, but=()):
        self.draw = random.Random(seed)
        self.latency = latency
        self.version = 0
        self.objects = {}
        self.refuse = lambda _: None
        self.writes = []
        self.put(SECRET, {"metadata": {"name": NAME}})
        for kind, name in CONFIGURATIONS:
            if name not in but:
                hook = {"name": f"{name}.kai", "clientConfig": {"service": {"name": "admission"}}}
                self.put((kind, name), {"metadata": {"name": name}, "webhooks": [hook]})

    def put(self, key, manifest):
        self.version += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self.version)}
        self.objects[key] = {**manifest, "kind": key[0], "metadata": metadata}

    def bundle(self, key):
        (hook,) = self.objects[key]["webhooks"]
        return split(base64.b64decode(hook["clientConfig"].get("caBundle", "")).decode())

    async def perform(self, request):
        await anyio.sleep(self.draw.random() * self.latency)
        reply = self.refuse(request) or self.answer(request)
        await anyio.sleep(self.draw.random() * self.latency)
        return reply

    def answer(self, request):
        if isinstance(request, Fetch):
            found = self.objects.get((request.kind, request.name))
            return copy.deepcopy(found) or Refusal(reason=Reason.NOT_FOUND)
        key = (request.ref.cls.__name__, request.ref.name)
        found = self.objects[key]
        if request.patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return Refusal(reason=Reason.CONFLICT, message="the object has been modified")
        self.writes.append(key)
        patch = dict(request.patch)
        if request.form == "strategic":
            (known,), (change,) = found["webhooks"], patch["webhooks"]
            assert known["name"] == change["name"]
            patch["webhooks"] = [merged(known, change)]
        self.put(key, merged(found, patch))
        return object()


def replica(server, timing=TIMING):
    rotation = Rotation(hosts=HOSTS, timing=timing)
    return RotatedCertificate(server, VirtualClock(), SPACE, NAME, rotation)


def in_virtual_time(work, *replicas):
    """Let replicas keep their certificates while something else is done."""

    async def both():
        async with anyio.create_task_group() as tasks:
            for each in replicas:
                tasks.start_soon(each.keep)
            await work()
            tasks.cancel_scope.cancel()

    run(both)


def authority(replica):
    return replica._pair.authority


def test_the_first_look_makes_a_certificate_that_configurations_trust():
    server = Server()
    ours, used = replica(server), []
    ours.observe = used.append

    async def work():
        await ours.ready()
        await anyio.sleep(5)

    assert "no certificate" in ours.problem()
    with pytest.raises(ConfigError, match="found none"):
        _ = ours.context
    with capture_logs() as lines:
        in_virtual_time(work, ours)
    assert {server.bundle(key) for key in CONFIGURATIONS} == {(authority(ours),)}
    assert (ours.problem(), ours.note()) == ("", "")
    assert ours.context is not None
    assert used == [CertificateUsed(end_of(ours._pair.certificate))]
    (line,) = [each for each in lines if each["event"] == "certificate"]
    assert (line["step"], line["secret"]) == ("made", f"{SPACE}/{NAME}")
    assert len(server.writes) == 1 + len(CONFIGURATIONS)


def test_nothing_is_written_while_nothing_is_due():
    server = Server()
    ours = replica(server)

    async def work():
        await anyio.sleep(60)
        before = len(server.writes)
        await anyio.sleep(TIMING.lifetime / 2)
        assert len(server.writes) == before

    in_virtual_time(work, ours)


@pytest.mark.parametrize("seed", range(4))
def test_replicas_serve_only_authorities_trusted_for_a_minute(seed):
    server = Server(seed=seed, latency=20.0)
    replicas = [replica(server) for _ in range(3)]
    seen = []

    async def work():
        for each in replicas:
            await each.ready()
        await anyio.sleep(600)  # at first nothing works, until everything is in its place
        for _ in range(400):
            known = {key: server.bundle(key) for key in CONFIGURATIONS}
            await anyio.sleep(60)
            for each in replicas:
                for key in CONFIGURATIONS:
                    assert authority(each) in known[key], "a replica answers with what is not trusted yet"
                    assert authority(each) in server.bundle(key), "a replica answers with what is trusted no more"
                assert end_of(each._pair.certificate) > each.clock.now()
            seen.append(authority(replicas[0]))

    in_virtual_time(work, *replicas)
    assert len(set(seen)) >= 5
    assert {len(server.bundle(key)) for key in CONFIGURATIONS} <= {1, 2}


def test_a_hundred_renewals_fail_no_review_of_ten_thousand():
    server = Server(seed=7, latency=2.0)
    replicas = [replica(server)]
    authorities, counts = set(), {"asked": 0, "failed": 0}

    async def work():
        for each in replicas:
            await each.ready()
        await anyio.sleep(600)
        while len(authorities) <= 100:
            for each in replicas:
                for key in CONFIGURATIONS:
                    counts["asked"] += 1
                    is_valid = end_of(each._pair.certificate) > each.clock.now()
                    counts["failed"] += not is_valid or authority(each) not in server.bundle(key)
                authorities.add(authority(each))
            await anyio.sleep(180)

    in_virtual_time(work, *replicas)
    assert counts["asked"] >= 10_000
    assert counts["failed"] == 0


def test_replicas_that_begin_together_make_and_serve_one_certificate():
    server = Server(latency=0.5)
    replicas = [replica(server) for _ in range(3)]

    async def work():
        await anyio.sleep(60)

    in_virtual_time(work, *replicas)
    assert len({authority(each) for each in replicas}) == 1
    assert server.writes.count(SECRET) == 1


def test_a_frozen_replica_catches_up_at_its_next_look():
    server = Server()
    awake, frozen = replica(server), replica(server)

    async def work():
        await frozen.look()
        await frozen.look()
        await anyio.sleep(5000)
        assert authority(frozen) != authority(awake)
        await frozen.look()
        assert authority(frozen) == authority(awake)

    in_virtual_time(work, awake)


def test_a_bundle_that_is_taken_away_is_put_back():
    server = Server()
    ours = replica(server)
    key = CONFIGURATIONS[0]

    async def work():
        await anyio.sleep(60)
        server.put(key, {**server.objects[key], "webhooks": [{"name": "kai-pod-mutation.kai", "clientConfig": {}}]})
        await anyio.sleep(60)
        assert server.bundle(key) == (authority(ours),)

    in_virtual_time(work, ours)


def test_renewal_ignores_configurations_that_do_not_exist():
    name = CONFIGURATIONS[-1][1]
    server = Server(but=(name,))
    ours = replica(server)

    async def work():
        await anyio.sleep(2 * TIMING.lifetime)

    in_virtual_time(work, ours)
    assert ours.note() == ""
    assert server.writes.count(SECRET) > 3


def test_a_missing_secret_is_reported_once_and_renewal_resumes():
    server = Server()
    secret = server.objects.pop(SECRET)
    ours = replica(server)

    async def work():
        await anyio.sleep(60)
        assert (
            ours.problem() == f"Secret {SPACE}/{NAME}: found none, expected the empty one that the installation brings"
        )
        server.put(SECRET, secret)
        await anyio.sleep(60)
        assert ours.problem() == ""

    with capture_logs() as lines:
        in_virtual_time(work, ours)
    assert len([each for each in lines if each["event"] == "certificate not renewed"]) == 1


def test_a_missing_right_is_noted_and_the_certificate_kept():
    server = Server()
    ours = replica(server)

    async def work():
        await anyio.sleep(60)
        server.refuse = lambda request: None if isinstance(request, Fetch) else Forbidden(message="may not patch")
        await anyio.sleep(TIMING.lifetime * 0.9)
        assert ours.problem() == ""
        assert ours.note() == f"Secret {SPACE}/{NAME}: not written: may not patch"
        server.refuse = lambda _: None
        await anyio.sleep(60)
        assert ours.note() == ""

    in_virtual_time(work, ours)


def test_a_server_that_does_not_answer_is_asked_again():
    server = Server()
    ours = replica(server)
    server.refuse = lambda _: Refusal(reason=Reason.UNAVAILABLE, message="away")

    async def work():
        await anyio.sleep(60)
        assert "not read: away" in ours.problem()
        server.refuse = lambda _: None
        await ours.ready()

    in_virtual_time(work, ours)


def test_no_key_is_ever_in_a_log_line():
    server = Server()
    ours = replica(server)

    async def work():
        await anyio.sleep(2 * TIMING.lifetime)

    with capture_logs() as lines:
        in_virtual_time(work, ours)
    assert lines
    assert "PRIVATE" not in repr(lines) + repr(ours)
