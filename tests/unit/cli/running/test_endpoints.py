"""Where a dashboard may listen, and which roles serve webhooks with which settings.

A dashboard that others can reach asks for tokens, or the process does not start.
"""

import ssl
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp
import anyio
import attrs
import pytest
from prometheus_client import CollectorRegistry

from kai.basics.errors import ConfigError
from kai.cli.running import process
from kai.cli.running.endpoints import Board, Place, admission_settings, doors, wanted_certificate, wanted_dashboard
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.process import Process
from kai.cluster.clock import SystemClock
from kai.cluster.process.listener import Address, Probes
from kai.cluster.transport.calls import NoAnswer
from kai.dashboard.access import TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import Dashboard
from kai.roles.admission import AdmissionSettings
from kai.roles.admission.certificates import make_pair
from kai.roles.admission.serving import PATHS, queue_finder
from tests.doubles.cpu import InlineCpu
from tests.doubles.http_server import HttpServer
from tests.doubles.two_tenants import ended_cycle
from tests.unit.cluster.assembled import in_virtual_time, port
from tests.unit.dashboard.test_server import ALL, Rights


def wanted(*arguments):
    return wanted_dashboard(read_flags(arguments, FLAGS, ROLES, TOGETHER))


def test_without_the_flag_there_is_none():
    assert wanted("scheduler") is None
    assert wanted("scheduler", "--dashboard=0") is None


def test_alone_the_flag_is_an_address_of_this_machine():
    found = wanted("scheduler", "--dashboard")
    assert (str(found.address), found.asks_for_tokens) == ("127.0.0.1:8085", False)
    assert wanted("--dashboard", "scheduler").address == found.address


@pytest.mark.parametrize("address", [":8085", "0.0.0.0:8085", "10.0.0.1:80", "[::]:8085", "example.com:80"])
def test_others_may_reach_it_only_with_tokens(address):
    with pytest.raises(ConfigError) as refused:
        wanted("scheduler", f"--dashboard={address}")
    (line,) = str(refused.value).splitlines()
    assert line.startswith("--dashboard: found ")
    assert "--dashboard-auth=token" in line
    assert wanted("scheduler", f"--dashboard={address}", "--dashboard-auth=token").asks_for_tokens


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:8085", "localhost:8085"])
def test_addresses_of_this_machine_need_none(address):
    assert not wanted("scheduler", f"--dashboard={address}").asks_for_tokens


def test_another_way_to_be_known_does_not_start():
    with pytest.raises(ConfigError, match=r"--dashboard-auth: found 'none', expected one of local, token"):
        wanted("scheduler", "--dashboard", "--dashboard-auth=none")


def test_a_certificate_encrypts_pages_and_answers_and_cookies(tmp_path):
    pair = make_pair(("localhost",), time.time(), 86400.0)
    (tmp_path / "tls.crt").write_text(pair.certificate)
    (tmp_path / "tls.key").write_text(pair.key)
    feed = Feed()
    feed.show(ended_cycle())
    clock, access = SystemClock(), TokenAccess(Rights(anna=ALL))
    answers = AnswerCache(feed, clock)
    pages = make_pages(answers, access, clock, lambda: [("ready", "yes", True)])
    place = Place(address=Address("127.0.0.1", 0), asks_for_tokens=True, certificate=tmp_path)
    board = Board(place, feed, Dashboard(answers=answers, access=access, pages=pages, is_encrypted=True))
    context = ssl.create_default_context(cadata=pair.authority)

    async def scenario():
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(lambda *, task_status: board.run(task_status=task_status))
            base = f"https://localhost:{port}"
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.CookieJar()) as session:
                async with session.post(f"{base}/login", data={"token": "anna"}, allow_redirects=False) as answer:
                    assert answer.status == 303
                    assert "; Secure" in answer.headers["Set-Cookie"]
                async with session.get(f"{base}/jobs") as page:
                    assert "ours-waits" in await page.text()
                async with session.get(f"{base}/api/v1/jobs", headers={"Authorization": "Bearer anna"}) as answer:
                    assert (await answer.json())["kind"] == "JobList"
                with pytest.raises(aiohttp.ClientError):
                    await session.get(f"http://localhost:{port}/jobs")
            tasks.cancel_scope.cancel()

    anyio.run(scenario)


def read(*words):
    return read_flags(words, FLAGS, ROLES, TOGETHER)


@pytest.fixture
def folder(tmp_path):
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("")
    return tmp_path


def certificate(role, *words):
    return wanted_certificate(read(role, *words), (role,))


def test_admission_wants_a_certificate_folder_even_when_empty(tmp_path):
    assert certificate("admission", f"--webhook-cert-dir={tmp_path}").folder == tmp_path


@pytest.mark.parametrize(
    ("role", "switch"), [("queue-controller", "enable-webhook"), ("podgroup-controller", "enable-podgroup-webhook")]
)
def test_controllers_serve_with_a_certificate_unless_switched_off(role, switch, folder, tmp_path):
    assert certificate(role, f"--webhook-cert-dir={folder}") is not None
    assert certificate(role, f"--webhook-cert-dir={folder}", f"--{switch}=false") is None
    assert certificate(role, f"--webhook-cert-dir={tmp_path / 'empty'}") is None


def test_admission_reads_its_certificate_from_a_named_secret():
    assert certificate("admission").secret == ""
    found = certificate("admission", "--webhook-secret=kai-webhooks", "--webhook-certificate-lifetime=24h")
    assert (found.secret, found.lifetime) == ("kai-webhooks", 86400.0)
    assert certificate("admission", "--webhook-secret=kai-webhooks", "--webhook-secret=").secret == ""


def test_a_certificate_lifetime_too_short_to_renew_is_refused():
    with pytest.raises(ConfigError, match="--webhook-certificate-lifetime: found 5s, expected 10s or more"):
        certificate("admission", "--webhook-certificate-lifetime=5s")


def test_the_certificate_is_for_the_service_and_probed():
    probes = Probes()
    cluster = SimpleNamespace(api=None, clock=None)
    made = certificate("admission", "--webhook-secret=kai-webhooks").identity(cluster, "ns", probes)
    assert made.rotation.hosts == ("admission.ns.svc", "admission.ns.svc.cluster.local")
    assert list(probes.problems()) == ["certificate"]


def test_other_roles_serve_none(folder):
    assert wanted_certificate(read(f"--webhook-cert-dir={folder}"), ("scheduler", "binder")) is None


def test_admission_settings_follow_flags_and_newer_names_win():
    assert admission_settings(read("admission")) == AdmissionSettings()
    words = ("--gpu-sharing-enabled", "--scheduler-name=other", "--enable-quota-validation")
    settings = admission_settings(read("admission", *words))
    assert (settings.gpu_sharing_enabled, settings.scheduler_name) == (True, "other")
    assert settings.queue_quota_validation
    older, newer = "--gpu-pod-runtime-class-name=a", "--gpu-fraction-runtime-class-name=b"
    assert admission_settings(read("admission", older)).gpu_fraction_runtime_class_name == "a"
    assert admission_settings(read("admission", older, newer)).gpu_fraction_runtime_class_name == "b"


def test_every_path_of_the_peer_has_a_door():
    class Store:
        def get(self, cls, name):
            del cls, name

    ours = {"/mutate-user-note", "/mutate-no-user-note"}
    assert doors(AdmissionSettings(), Store()).keys() == {*PATHS, *ours}
    assert queue_finder(Store())("any") is None


# --- The process that answers ----------------------------------------------------------------------------------------

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "POD_NAMESPACE": "kai-scheduler"}


@pytest.fixture
def admission(monkeypatch, folder):
    """Return how to run the role until it is told to end, with a server; returns its probes and when it served."""
    served = []

    async def serving(*_, **__):
        began = anyio.current_time()
        try:
            await anyio.sleep_forever()
        finally:
            served.append(anyio.current_time() - began)

    async def silent(_address, _routes, *, task_status):
        task_status.started()
        await anyio.sleep_forever()

    monkeypatch.setattr("anyio.to_thread.run_sync", InlineCpu().run)
    monkeypatch.setattr(process, "listen", silent)
    monkeypatch.setattr("kai.roles.admission.serving.serve_webhooks", serving)
    monkeypatch.setattr("kai.roles.admission.serving.CertificateOfFiles", lambda *_: None)

    async def run(environment, server, until):
        @asynccontextmanager
        async def connected(options):
            yield attrs.evolve(port(server, watched=options.watched), cpu=InlineCpu())

        async def signalled(scope, _leave):
            await until(made.probes)
            scope.cancel()

        monkeypatch.setattr(process, "connect", connected)
        monkeypatch.setattr(process, "end_on_signal", signalled)
        made = Process.of(read("admission", f"--webhook-cert-dir={folder}"), environment)
        await attrs.evolve(made, registry=CollectorRegistry(), probes=made.probes).run()
        return served

    return run


@in_virtual_time
@pytest.mark.parametrize(("environment", "seconds"), [(POD, 105), ({}, 100)])
async def test_a_terminating_pod_still_serves_until_endpoints_drop_it(environment, seconds, admission):
    """Each replica that a rollout ends would else refuse connections, and with them pods that share GPUs."""
    served = await admission(environment, HttpServer(), lambda _: anyio.sleep(100.0))
    assert [round(each) for each in served] == [seconds]


@in_virtual_time
async def test_webhooks_stay_ready_while_the_api_server_is_unreachable(admission):
    server, seen = HttpServer(), []

    async def outage(probes):
        seen.append(dict(probes.problems()))
        await anyio.sleep(10.0)
        seen.append(dict(probes.problems()))
        server.faults.before = lambda _: NoAnswer(was_sent=False, message="refused")
        server.faults.piece = lambda _: None
        await anyio.sleep(100.0)
        seen.append(dict(probes.problems()))
        seen.append((await probes.routes()["/readyz"].answer()).body.decode())

    await admission({}, server, outage)
    before, ready, during, said = seen
    assert before["cluster"].endswith("not listed yet: queues"), "it may not know of queues yet"
    assert (ready, during) == ({}, {})
    assert said.startswith("ok\ncluster: the API server https://test:6443 cannot be reached for ")
