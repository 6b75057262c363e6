"""``kai why JOB`` of a cluster whose service is asked first: when it is, what it says, and when the command decides."""

import json
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import yaml
from anyio.from_thread import start_blocking_portal

from kai.answers.documents import asking
from kai.basics.errors import InputError
from kai.cli.command import run
from kai.cli.serving import Served
from kai.cli.sources import Source
from kai.cluster.clock import SystemClock
from kai.cluster.process.connections import Response, serve
from kai.dashboard.access import TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import Feed
from kai.dashboard.pages import make_pages
from kai.dashboard.server import LIMITS, Dashboard
from tests.doubles.two_tenants import OURS, ended_cycle
from tests.unit.dashboard.test_server import Rights

PROXY = "/api/v1/namespaces/kai-scheduler/services/kai-dashboard:dashboard/proxy"
HERE = "decided here"
ALL = {"podgroups", "queues", "nodes"}


class Front:
    """An API server that leads to a service, or says what it is told to."""

    def __init__(self, rights=ALL):
        feed = Feed()
        feed.show(ended_cycle())
        self.asked = []
        self.instead = {}
        access = TokenAccess(Rights(tenant=rights))
        answers, clock = AnswerCache(feed, SystemClock()), SystemClock()
        self._board = Dashboard(
            answers=answers, access=access, pages=make_pages(answers, access, clock, list), patience=600
        )

    async def respond(self, request):
        self.asked.append(request.path)
        path = request.path.removeprefix(PROXY)
        if path == request.path:
            return Response(status=404)
        if path in self.instead:
            return await self.instead[path]()
        own = {"X-Kai-Token": request.headers.get("X-Kai-Token", "")}
        return await self._board.respond(_with(request, path, own))


def _with(request, path, headers):
    return type(request)(method="GET", path=path, peer="", query=request.query, headers=headers)


@contextmanager
def served(front, folder, **user):
    with start_blocking_portal() as portal:
        serving, port = portal.start_task(serve, "127.0.0.1", 0, front.respond, LIMITS)
        config = {
            "current-context": "prod",
            "clusters": [{"name": "prod", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "jane", "user": user or {"token": "tenant"}}],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "jane", "namespace": OURS}}],
        }
        path = folder / "config"
        path.write_text(yaml.safe_dump(config))
        yield str(path)
        serving.cancel()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Wait for the service however busy the machine is."""
    monkeypatch.setattr(asking, "SOON", 60.0)


@pytest.fixture
def decides(monkeypatch):
    """Have the command say that it decides, in place of reading a cluster."""

    def decide(*_):
        raise InputError(HERE)

    monkeypatch.setattr(Source, "decide", decide)


def said(capsys, path, *words, code=0):
    assert run(["why", *words, "--kubeconfig", path]) == code
    return capsys.readouterr()


@pytest.mark.usefixtures("decides")
def test_a_service_that_sees_everything_is_asked_first(tmp_path, capsys):
    front = Front()
    with served(front, tmp_path) as path:
        for name in ("ours-waits", "job/ours-waits", "ours-waits-1", "ours-runs"):
            answer = said(capsys, path, name)
            assert answer.out.startswith(f"{'ours-runs' if 'runs' in name else 'ours-waits'} ")
            assert answer.err == "source: service kai-scheduler/kai-dashboard, cycle 1\n"
        assert run(["why", "ours-waits", "--kubeconfig", path, "--exit-code"]) == 1
        assert run(["why", "ours-runs", "--kubeconfig", path, "--exit-code"]) == 0
    assert set(front.asked) == {f"{PROXY}/api/v1", f"{PROXY}/api/v1/why"}


@pytest.mark.parametrize("name", ["ours-waits", "ours-runs", "ours-waits-0"])
@pytest.mark.parametrize("form", ["table", "wide", "json", "name"])
def test_it_says_what_the_command_finds_out_itself(tmp_path, capsys, monkeypatch, name, form):
    case = ended_cycle().outcome.case
    with served(Front(), tmp_path) as path:
        theirs = said(capsys, path, name, "-o", form)
        monkeypatch.setattr("kai.cli.explaining.why.is_for_service", lambda *_: False)
        monkeypatch.setattr(Source, "read", lambda _: case)
        own = said(capsys, path, name, "-o", form, "-A")
    assert theirs.err.startswith("source: service ")
    assert _told(theirs.out, form) == _told(own.out, form)


def _told(text, form):
    if form != "json":
        return text
    document = json.loads(text)
    del document["source"], document["generatedAt"]
    return json.dumps(document)


@pytest.mark.usefixtures("decides")
@pytest.mark.parametrize(
    "words",
    [
        ["queue/team-amber"],
        ["node/basalt-1"],
        ["--all"],
        ["--evicted"],
        ["ours-waits", "--detail"],
        ["ours-waits", "--no-verify"],
        ["ours-waits", "-l", "app=web"],
        ["ours-waits", "--as", "joe"],
        ["ours-waits", "--config", "policy.yaml"],
    ],
)
def test_a_question_the_service_answers_otherwise_stays_local(tmp_path, capsys, words):
    front = Front()
    with served(front, tmp_path) as path:
        assert said(capsys, path, *words, code=4).err == f"error: {HERE}\n"
    assert front.asked == []


async def _silent():
    await anyio.sleep(60)
    return Response()


def _answers(status=200, body=b"{}"):
    async def answer():
        return Response(status=status, body=body, content_type="application/json")

    return answer


LACKING = json.dumps({"kind": "Explanation", "source": {"complete": True}, "generatedAt": "2026-01-01T00:00:00Z"})


@pytest.mark.usefixtures("decides")
@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/api/v1", _answers(404)),
        ("/api/v1", _answers(403, b'{"message": "forbidden"}')),
        ("/api/v1", _answers(503)),
        ("/api/v1/why", _answers(404)),
        ("/api/v1/why", _answers(403)),
        ("/api/v1/why", _answers(429)),
        ("/api/v1/why", _answers(500)),
        ("/api/v1/why", _answers(503)),
        ("/api/v1/why", _answers(body=b"<html>")),
        ("/api/v1/why", _answers(body=b"[]")),
        ("/api/v1/why", _answers(body=LACKING.encode())),
    ],
)
def test_the_command_decides_where_the_service_does_not_answer(tmp_path, capsys, path, answer):
    front = Front()
    front.instead[path] = answer
    with served(front, tmp_path) as config:
        quiet = said(capsys, config, "ours-waits", code=4)
        assert (quiet.out, quiet.err) == ("", f"error: {HERE}\n")
        assert "note: " in said(capsys, config, "ours-waits", "-v", code=4).err


SLOW = "note: kai-scheduler/kai-dashboard: no answer within 0.3 s, so this is decided here\n"


@pytest.mark.usefixtures("decides")
@pytest.mark.parametrize("path", ["/api/v1", "/api/v1/why"])
def test_a_hanging_service_times_out_with_a_note(tmp_path, capsys, monkeypatch, path):
    monkeypatch.setattr(asking, "SOON", 0.3)
    front = Front()
    front.instead[path] = _silent
    with served(front, tmp_path) as config:
        assert said(capsys, config, "ours-waits", code=4).err == f"{SLOW}error: {HERE}\n"
        assert said(capsys, config, "ours-waits", "-q", code=4).err == f"error: {HERE}\n"


@pytest.mark.usefixtures("decides")
def test_a_silent_server_times_out_with_a_note(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(asking, "SOON", 0.3)
    with served(Front(), tmp_path) as config, socket.create_server(("127.0.0.1", 0)) as deaf:
        text = Path(config).read_text()
        port = deaf.getsockname()[1]
        Path(config).write_text(re.sub(r"https?://127\.0\.0\.1:\d+", f"http://127.0.0.1:{port}", text))
        assert said(capsys, config, "ours-waits", code=4).err == f"{SLOW}error: {HERE}\n"


@pytest.mark.usefixtures("decides")
@pytest.mark.parametrize("name", ["nothing-like-it", "quokka"])
def test_an_unknown_job_of_the_service_is_searched_locally(tmp_path, capsys, name):
    with served(Front(), tmp_path) as path:
        assert said(capsys, path, name, code=4).err == f"error: {HERE}\n"


@pytest.mark.usefixtures("decides")
def test_fewer_rights_at_the_service_lead_to_local_answers(tmp_path, capsys):
    with served(Front({"podgroups", "queues"}), tmp_path) as path:
        assert said(capsys, path, "ours-waits", code=4).err == f"error: {HERE}\n"


@pytest.mark.usefixtures("decides")
def test_without_a_token_the_service_cannot_be_asked(tmp_path, capsys):
    front = Front()
    with served(front, tmp_path, **{"client-certificate": "of.pem", "client-key": "of.pem"}) as path:
        assert said(capsys, path, "ours-waits", code=4).err == f"error: {HERE}\n"
    assert front.asked == []


def test_little_is_imported_to_ask_and_to_print(tmp_path):
    heavy = ("numpy", "numba", "cattrs", "structlog", "kubernetes_asyncio", "kai.deciding.engine", "kai.framework")
    look = (
        "import sys, kai.cli.command as command\n"
        "status = command.run(sys.argv[1:])\n"
        f"print(*sorted(set(sys.modules) & {{*{heavy!r}, 'kai.api.cluster_objects', 'kai.facts.kernels'}}))\n"
        "sys.exit(status)"
    )
    with served(Front(), tmp_path) as path:
        words = ["why", "ours-waits", "--kubeconfig", path]
        seen = subprocess.run([sys.executable, "-c", look, *words], capture_output=True, text=True, check=False)
    assert (seen.returncode, seen.stdout.splitlines()[-1]) == (0, ""), seen.stderr
    assert seen.stdout.startswith("ours-waits ")
    assert seen.stderr.startswith("source: service ")


def test_an_item_asked_for_by_itself_has_no_envelope(tmp_path, capsys, monkeypatch):
    ask = Served.ask

    def with_one_more(self, place, **parameters):
        document = ask(self, place, **parameters)
        if place != "waiting":
            return document
        (item,) = document["items"]
        own = item["subject"]
        alike = {**own, "title": own["name"], "pods": item["pods"], "gpus": item["gpus"]}
        return {**document, "items": [{**item, "subject": {**own, "name": "dropped"}, "alike": [alike]}]}

    monkeypatch.setattr(Served, "ask", with_one_more)
    with served(Front(), tmp_path) as path:
        words = ("--all", "--service", "kai-scheduler/kai-dashboard", "-l", "app!=web", "-o", "json")
        (item,) = json.loads(said(capsys, path, *words).out)["items"]
    assert item["subject"]["name"] == "ours-waits"
    assert not item.keys() & {"apiVersion", "kind", "generatedAt", "source", "program"}
    assert not item.keys() & {"evicted", "assumptions", "untried"}
