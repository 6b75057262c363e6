"""The dashboard on a real API server: its reviews, what a user of one namespace sees, and the end of a token."""

import http.client
import json
import re
import socket
from contextlib import closing, contextmanager, suppress

import pytest
import yaml

from kai.cli.command import run
from tests.integration.behaviour import Job, Part
from tests.integration.client import until
from tests.integration.installation import install
from tests.integration.ports import free_ports
from tests.integration.processes import NAMESPACE
from tests.integration.stage import an_object, node, queue, staged
from tests.integration.test_reading import RBAC, account, shown
from tests.unit.deploy.rendering import DEPLOY, load

THEIRS = "secret-garden"
SERVICE = "kai-dashboard"
PATIENCE = 60


def own_address() -> str:
    """Return an address of this machine that the API server may connect to, "" if there is none but the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # no packet is sent
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


ADDRESS = own_address()


class Board:
    """A dashboard that is served."""

    def __init__(self, stage, port):
        self.stage = stage
        self.port = port

    @contextmanager
    def asked(self, path, token):
        connection = http.client.HTTPConnection(ADDRESS or "127.0.0.1", self.port, timeout=PATIENCE)
        with closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            with closing(connection.getresponse()) as response:
                yield response

    def read(self, path, token=""):
        with self.asked(path, token) as response:
            return response.status, response.read().decode()

    def reviews(self):
        """Return how often kai had a token reviewed."""
        return sum(event["requestURI"].endswith("/tokenreviews") for event in self.stage.plane.audited())

    def token(self, name):
        return self.stage.plane.account(self.stage.space, name).token


def pieces(stage):
    """Create what the component brings, with the address of this process in the place of its pod's."""
    for name in ("service.yaml", "rights.yaml"):
        for manifest in load(DEPLOY / "components" / "dashboard" / name):
            if manifest["kind"] == "Service":
                del manifest["spec"]["selector"]
            stage.api.apply(manifest)


@pytest.fixture(scope="module")
def board(bare_control_plane, tmp_path_factory):
    """Serve the dashboard of a scheduler; two tenants have jobs."""
    install(bare_control_plane, DEPLOY / "base")
    with staged(bare_control_plane, tmp_path_factory.mktemp("dashboard")) as stage:
        pieces(stage)
        stage.open()
        stage.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THEIRS}})
        theirs = Job(name="secret-job", part=Part(gpu=1, node="n1"), queue="cellar").manifests()
        for manifest in (
            node("n1", gpu=4),
            queue("company", gpu={"quota": 4}),
            queue("team", parent="company", gpu={"quota": 2, "limit": 2}),
            queue("cellar", parent="company", gpu={"quota": 2}),
            *Job(name="waits", part=Part(gpu=3), queue="team").manifests(),
            *({**each, "metadata": {**each["metadata"], "namespace": THEIRS}} for each in theirs),
        ):
            stage.create(manifest)
        own = [{"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups"], "verbs": ["get", "list"]}]
        stage.create(an_object("v1", "ServiceAccount", "tenant"))
        stage.create(an_object(RBAC, "Role", "tenant", rules=own))
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": stage.space}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
        stage.create(an_object(RBAC, "RoleBinding", "tenant", subjects=[subject], roleRef=role))
        account(stage, "stranger", [])
        account(stage, "operator", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}])
        (port,) = free_ports(1)
        stage.start("kai", flags=(f"--dashboard={ADDRESS or '127.0.0.1'}:{port}", "--dashboard-auth=token"))
        found = Board(stage, port)
        until(lambda: found.read("/api/v1/jobs", found.token("operator"))[0] == 200, "the first cycle")
        yield found
        stage.clear()


def test_without_a_token_nothing_is_told(board):
    for path in ("/", "/jobs", "/api/v1/jobs", "/snapshot.zip"):
        status, text = board.read(path)
        assert (status, "waits" in text) == (401, False)
    assert board.read("/api/v1/jobs", "no.such.token")[0] == 401


def test_a_user_without_rights_sees_no_row(board):
    token = board.token("stranger")
    assert board.read("/api/v1/jobs", token)[0] == 403
    for page in ("/", "/queues", "/jobs", "/nodes", "/waiting", "/cycles"):
        status, text = board.read(page, token)
        assert status == 200
        assert not [name for name in ("waits", "secret", "cellar", "n1") if f">{name}" in text]
    assert "The cluster has 4 GPUs on 1 node. You may see no job and no queue of it." in board.read("/", token)[1]


def test_a_namespaces_user_sees_no_foreign_name(board):
    token = board.token("tenant")
    document = json.loads(until(lambda: _good(board, "/api/v1/jobs", token), "the right to list"))
    assert [item["name"] for item in document["items"]] == ["waits"]
    for path in ("/api/v1/waiting", f"/api/v1/jobs/{board.stage.space}/waits", "/", "/jobs", "/waiting"):
        status, text = board.read(path, token)
        assert status == 200
        assert not [name for name in ("secret", "cellar") if name in text]
    own = "0 of these are allocated to 1 job that you may see; of the jobs that you may see 0 run, 1 waits."
    assert own in board.read("/", token)[1]
    assert board.read(f"/api/v1/jobs/{THEIRS}/secret-job", token)[0] == 403


def _good(board, path, token):
    status, text = board.read(path, token)
    return text if status == 200 else None


def test_an_operator_sees_everything(board):
    text = board.read("/api/v1/jobs", board.token("operator"))[1]
    assert {item["name"] for item in json.loads(text)["items"]} == {"waits", "secret-job"}


def test_a_stream_ends_with_the_account_of_its_token(board):
    account(board.stage, "leaver", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}])
    token = board.token("leaver")
    until(lambda: _good(board, "/api/v1/jobs", token), "the right to list")
    with board.asked("/events?page=queues", token) as stream:
        assert stream.status == 200
        assert stream.readline() == b"retry: 3000\n"
        board.stage.delete("v1", "ServiceAccount", "leaver")
        before = board.reviews()
        lines = [line.decode() for line in iter(stream.readline, b"")]
    assert "event: over\n" in lines
    # A stream looks at its token every ten seconds, and the API server says for ten seconds what it knew of a token.
    # Beats would say nothing of time: a page that stays as it is gets one with each cycle.
    assert board.reviews() - before <= 3
    assert board.read("/api/v1/jobs", token)[0] == 401


def asked_further(capsys, where):
    """Ask the service what is left to ask, as the tenant: own jobs are answered, and what is others' is refused."""
    for question, answer in (
        (("why", "waits-0"), "waits waits: queue team may not use more than 2 GPUs"),
        (("why", "--all"), "1 job waits, for 1 reason\n\nOverLimit · queue team · 1 pod, 3 GPUs\n"),
        (("why", "--all", "-l", "nothing=of-this"), "no job waits"),
        (("why", "--evicted"), "no pod has to go and no eviction is on record"),
        (("why", "waits", "--evicted"), "no pod has to go and no eviction is on record"),
        (("jobs", "--pods"), "POD      JOB    QUEUE  GPUS  STATE  NODE\nwaits-0  waits  team      3  Waits  -\n"),
    ):
        said = shown(capsys, *question, *where)
        assert said.out.startswith(answer), question
        assert "source: service kai-scheduler/kai-dashboard, cycle " in said.err, question
    for refused in (("why", "node/n1"), ("why", "queue/cellar"), ("nodes",)):
        said = shown(capsys, *refused, *where, code=3)
        assert (said.out, "not allowed to list nodes" in said.err) == ("", True)


@pytest.fixture(scope="module")
def proxied(board):
    """Let the API server lead to the dashboard: it does to addresses of pods only, and this one has the process's."""
    if not ADDRESS:
        pytest.skip("this machine has no address that the API server may connect to")
    secured = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    containers = [{"name": "kai", "image": "kai", "securityContext": secured}]
    place = {"namespace": NAMESPACE}
    pod = an_object("v1", "Pod", SERVICE, metadata=place, spec={"containers": containers, "schedulerName": "none"})
    board.stage.create({**pod, "status": {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}})
    endpoints(board)
    return board


def endpoints(board):
    """Say where the Service leads; they go with it."""
    target = {"kind": "Pod", "name": SERVICE, "namespace": NAMESPACE}
    subset = {
        "addresses": [{"ip": ADDRESS, "targetRef": target}],
        "ports": [{"name": "dashboard", "port": board.port, "protocol": "TCP"}],
    }
    place = {"namespace": NAMESPACE}
    board.stage.api.apply(an_object("v1", "Endpoints", SERVICE, metadata=place, subsets=[subset]))
    # API servers from 1.37 on look here instead.
    endpoint = {"addresses": [ADDRESS], "conditions": {"ready": True}, "targetRef": target}
    place["labels"] = {"kubernetes.io/service-name": SERVICE}
    slices = {"addressType": "IPv4", "endpoints": [endpoint], "ports": subset["ports"]}
    board.stage.api.apply(an_object("discovery.k8s.io/v1", "EndpointSlice", SERVICE, metadata=place, **slices))


def test_a_namespaces_user_asks_the_service_by_proxy(proxied, capsys):
    stage = proxied.stage
    path = str(stage.plane.kubeconfig(stage.plane.account(stage.space, "tenant"), "tenant"))
    where = ["--kubeconfig", path, "-n", stage.space]

    def is_served():
        run(["jobs", *where])
        return "source: service kai-scheduler/kai-dashboard, cycle " in capsys.readouterr().err

    until(is_served, "the service behind the API server")
    said = shown(capsys, "jobs", *where)
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["waits"]
    assert said.err.splitlines()[-1].endswith("; what you may not list is left out")
    explained = shown(capsys, "why", "waits", *where)
    assert explained.out.startswith("waits waits: ")
    assert "secret" not in explained.out
    asked_further(capsys, where)
    stage.api.delete(an_object("v1", "Service", SERVICE, metadata={"namespace": NAMESPACE}))
    place = {"namespace": NAMESPACE}
    stage.api.delete(an_object("discovery.k8s.io/v1", "EndpointSlice", SERVICE, metadata=place))

    def is_alone():
        said = shown(capsys, "jobs", *where).err.splitlines()[-1]
        return said.startswith("source: own conditions only (cannot list ")

    until(is_alone, "the API server to know that the service is gone")
    pieces(stage)
    endpoints(proxied)


@pytest.mark.parametrize("name", ["waits", "job/waits", "waits-0"])
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name"])
def test_the_service_and_the_command_give_equal_answers(proxied, capsys, monkeypatch, name, form):
    stage = proxied.stage
    path = str(stage.plane.kubeconfig(stage.plane.account(stage.space, "operator"), "operator"))
    question = ("why", name, "--kubeconfig", path, "-n", stage.space, "-o", form)

    def is_served():
        assert run(list(question)) == 0
        said = capsys.readouterr()
        return said if said.err.startswith("source: service kai-scheduler/kai-dashboard, cycle ") else None

    answers = ["", ""]

    def is_same():
        served = until(is_served, "the service behind the API server")
        with monkeypatch.context() as patches:
            patches.setattr("kai.cli.explaining.why.is_for_service", lambda *_: False)
            own = shown(capsys, *question)
        assert own.err.startswith("source: test ")
        answers[:] = [_apart_from_source(said.out, form) for said in (served, own)]
        return answers[0] == answers[1]

    # What the command reads may be newer than the last cycle: a condition that was written meanwhile is in both soon.
    with suppress(TimeoutError):
        until(is_same, "both to say the same", seconds=20.0)
    assert answers[0] == answers[1]


def _apart_from_source(text, form):
    """Return an answer without what says where and when it was made."""
    if form in {"json", "yaml"}:
        document = yaml.safe_load(text)
        del document["source"], document["generatedAt"], document["waitingSeconds"]
        return json.dumps(document)
    return re.sub(r"(waiting )[0-9]+[sm]", r"\1", text)
