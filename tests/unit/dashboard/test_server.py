"""What is answered to whom: rights, rows that are left out, and what a browser is told not to do."""

import json

import anyio
import attrs
import pytest

from kai.answers.offline.run import simulate
from kai.cluster.process.connections import Request, Response
from kai.cluster.requesting.reviews import ClientIdentity, ReviewError
from kai.dashboard import answer_cache
from kai.dashboard.access import LocalAccess, TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import CycleLine, Feed, Happening
from kai.dashboard.pages import make_pages
from kai.dashboard.server import PATIENCE, Dashboard
from tests.doubles import virtual_time
from tests.doubles.cluster import VirtualClock
from tests.doubles.two_tenants import NODES, NOW, OURS, SECRETS, THEIRS, ended_cycle
from tests.doubles.virtual_time import VirtualClock as TimedClock

ALL = {"podgroups", "queues", "nodes"}
LAST = ended_cycle()


class Rights:
    """The reviews of a cluster: tokens with what their owners may list; * is everywhere."""

    def __init__(self, **tokens):
        self.tokens = tokens
        self.extra = {}
        self.is_away = False
        self.why = "10.0.0.1:6443 is away"
        self.is_forbidden = False

    async def identify(self, token, most_age=30.0):
        del most_age
        if self.is_away:
            raise ReviewError(self.why, retryable=not self.is_forbidden)
        return ClientIdentity(user=token, extra=dict(self.extra)) if token in self.tokens else None

    async def allows(self, identity, permission, most_age=30.0):
        del most_age
        held = self.tokens[identity.user]
        place = permission.namespace or permission.name
        return permission.resource in held or f"{permission.resource}/{place}" in held


def dashboard(rights=None, last=LAST, clock=None):
    feed = Feed()
    if last is not None:
        feed.show(last)
    access, clock = LocalAccess() if rights is None else TokenAccess(rights), clock or VirtualClock()
    answers = AnswerCache(feed, clock)
    pages = make_pages(answers, access, clock, list)
    # Where threads are real ones a machine that compiles kernels first may take as long as it likes.
    patience = PATIENCE if isinstance(clock, TimedClock) else 600.0
    return Dashboard(answers=answers, access=access, pages=pages, patience=patience)


def asked(board, path, token="", **headers):
    path, _, query = path.partition("?")
    parameters = dict(part.split("=") for part in query.split("&") if part)
    headers.setdefault("Host", "localhost:8085")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = Request(method="GET", path=path, peer="127.0.0.1", query=parameters, headers=headers)
    return anyio.run(board.respond, request)


def read(board, path, token=""):
    response = asked(board, path, token)
    assert response.status == 200, response.body
    return json.loads(response.body)


def why(board, query, token=""):
    response = asked(board, f"/api/v1/why?{query}", token)
    return response.status, json.loads(response.body)


def test_why_answers_by_job_name_or_pod_name():
    for name in ("ours-waits", f"{OURS}/ours-waits", "ours-waits-1"):
        status, told = why(dashboard(), f"name={name}&namespace={OURS}")
        assert (status, told["kind"], told["subject"]["name"]) == (200, "Explanation", "ours-waits")
        assert (told["queue"], told["pods"], told["gpus"], told["since"]) == ("team-amber", 2, 8.0, None)
    assert why(dashboard(), "name=ours-runs")[1]["reason"] is None


@pytest.mark.parametrize(
    ("query", "token", "status"),
    [
        ("namespace=amber", "", 400),
        ("name=ours-waits", "amber", 403),
        ("name=ours-waits&namespace=cobalt", "", 404),
        ("name=nothing", "", 404),
        ("name=twin", "", 409),
    ],
)
def test_an_unanswerable_question_is_refused_to_the_reader(query, token, status):
    rights = Rights(amber={"podgroups", "queues"}) if token else None
    assert why(dashboard(rights, twins() if "twin" in query else LAST), query, token)[0] == status


def twins():
    """Return a moment in which jobs of two namespaces have one name."""
    case = LAST.outcome.case
    groups = tuple(
        attrs.evolve(each, metadata=attrs.evolve(each.metadata, name="twin"))
        if each.metadata.name in {"ours-waits", "walrus-waits"}
        else each
        for each in case.objects.pod_groups
    )
    objects = attrs.evolve(case.objects, pod_groups=groups)
    return attrs.evolve(LAST, outcome=simulate(attrs.evolve(case, objects=objects)))


def test_an_outdated_answer_is_refused_with_retry_after():
    board = dashboard()
    assert why(board, "name=ours-waits")[0] == 200
    last = LAST.outcome.last
    later = attrs.evolve(last, snapshot=attrs.evolve(last.snapshot, now=NOW + 11))
    board.answers.feed.show(attrs.evolve(LAST, outcome=attrs.evolve(LAST.outcome, cycles=(later,))))
    told = asked(board, "/api/v1/why?name=ours-waits")
    assert (told.status, told.headers["Retry-After"]) == (503, "5")
    assert "ask again, or decide yourself" in told.body.decode()
    assert asked(board, "/api/v1/jobs").status == 200


def test_a_large_cluster_tries_no_changes_with_a_note(monkeypatch):
    monkeypatch.setattr("kai.dashboard.look._MOST_DECIDED_ON", 7)
    status, told = why(dashboard(), "name=ours-waits")
    assert (status, told["suggestions"], told["allChangesTried"]) == (200, [], False)
    assert told["reason"]["code"] == "GangDoesNotFit"
    assert told["untried"].startswith("the cluster has more than 7 pods and nodes, so no change is tried here; kai why")
    assert read(dashboard(), f"/api/v1/jobs/{OURS}/ours-waits")["suggestions"] == []
    page = asked(dashboard(), f"/jobs/{OURS}/ours-waits").body.decode()
    assert "No change is tried here, because the cluster is large; kai why tries changes." in page


def test_this_machine_reads_everything_as_the_commands_print_it():
    board = dashboard()
    jobs = read(board, "/api/v1/jobs")
    assert (jobs["apiVersion"], jobs["kind"], jobs["source"]["type"]) == ("output.kai/v1", "JobList", "service")
    assert {item["name"] for item in jobs["items"]} >= {"ours-runs", "ours-waits", "quokka", "walrus"}
    assert [item["name"] for item in read(board, "/api/v1/queues")["items"]] == ["company", "team-amber", "team-zebra"]
    assert [item["name"] for item in read(board, "/api/v1/nodes")["items"]] == list(NODES)
    explained = read(board, f"/api/v1/jobs/{OURS}/ours-waits")
    assert explained["kind"] == "Explanation"
    assert explained["reason"]["code"]
    assert read(board, "/api/v1/queues/team-amber")["kind"] == "QueueExplanation"
    assert read(board, "/api/v1/waiting")["kind"] == "ExplanationList"
    assert read(board, "/api/v1/cycles")["kind"] == "CycleList"
    assert read(board, "/api/v1/evictions")["kind"] == "EvictionList"
    node = read(board, "/api/v1/nodes/basalt-1")
    assert node["kind"] == "NodeExplanation"
    assert {user["job"] for user in node["users"]} == {f"{OURS}/ours-runs", f"{THEIRS}/quokka"}
    pods = {item["name"]: item["podList"] for item in read(board, "/api/v1/jobs?pods=true")["items"]}
    assert [pod["name"] for pod in pods["ours-waits"]] == ["ours-waits-0", "ours-waits-1"]


def test_an_unknown_host_name_reads_nothing():
    board = dashboard()
    for host in ("evil.example", "evil.example:8085", "", "127.0.0.1.evil.example", "[::2]:8085"):
        response = asked(board, "/api/v1/jobs", Host=host)
        assert (response.status, b"quokka" in response.body) == (421, False)
    for host in ("localhost", "127.0.0.1:9000", "[::1]:8085"):
        assert asked(board, "/api/v1/jobs", Host=host).status == 200


def test_a_token_that_is_narrowed_is_another():
    async def scenario():
        rights = Rights(anna=ALL)
        access = TokenAccess(rights)
        headers = {"Authorization": "Bearer anna"}
        reader = await access.reader(Request(method="GET", path="/", peer="10.0.0.1", headers=headers))
        assert await access.holds(reader)
        rights.extra = {"scopes": ["user:info"]}
        assert not await access.holds(reader)

    anyio.run(scenario)


@pytest.mark.parametrize("token", ["", "unknown"])
def test_without_a_known_token_nothing_is_told(token):
    board = dashboard(Rights(anna=ALL))
    for path in ("/api/v1/jobs", "/api/v1/nodes", "/api/v1", "/", "/snapshot.zip"):
        response = asked(board, path, token)
        assert response.status == 401
        assert response.headers.get("WWW-Authenticate") == ("Bearer" if path.startswith("/api/v1") else None)


def test_where_rights_cannot_be_looked_up_nothing_is_told():
    rights = Rights(anna=ALL)
    rights.is_away = True
    found = asked(dashboard(rights), "/api/v1/jobs", "anna")
    assert (found.status, b"10.0.0.1" in found.body) == (503, False)


def test_the_right_that_kai_itself_lacks_is_named():
    rights = Rights(anna=ALL)
    rights.is_away, rights.is_forbidden, rights.why = True, True, "kai may not create tokenreviews"
    for path in ("/", "/api/v1/jobs"):
        found = asked(dashboard(rights), path, "anna")
        assert found.status == 503
        assert b": kai may not create tokenreviews (deploy/components/dashboard)" in found.body


def test_a_user_without_rights_is_told_which_are_missing():
    board = dashboard(Rights(stranger=set()))
    for path, right in (
        ("/api/v1/jobs", "list podgroups.scheduling.run.ai"),
        ("/api/v1/queues", "get queues"),
        ("/api/v1/nodes", "list nodes"),
        ("/api/v1/waiting", "list podgroups.scheduling.run.ai"),
        (f"/api/v1/jobs/{OURS}/ours-waits", "list podgroups.scheduling.run.ai"),
    ):
        response = asked(board, path, "stranger")
        assert response.status == 403
        assert right in json.loads(response.body)["error"]


PATHS = (
    "/api/v1/jobs",
    f"/api/v1/jobs?namespace={OURS}",
    f"/api/v1/jobs?namespace={OURS}&pods=true",
    f"/api/v1/jobs/{OURS}/ours-waits",
    f"/api/v1/jobs/{OURS}/ours-runs",
    "/api/v1/queues",
    "/api/v1/queues/team-amber",
    "/api/v1/nodes",
    "/api/v1/nodes/basalt-1",
    "/api/v1/waiting",
    "/api/v1/evictions",
    "/api/v1/cycles",
)


@pytest.mark.parametrize("more", [set(), {"queues/team-amber"}, {"nodes"}, {"nodes", "queues/team-amber"}])
@pytest.mark.parametrize("path", PATHS)
def test_no_name_of_another_tenant_is_told(path, more):
    board = dashboard(Rights(tenant={f"podgroups/{OURS}", *more}))
    text = asked(board, path, "tenant").body.decode()
    assert not [secret for secret in SECRETS if secret in text]
    if "nodes" not in more:
        assert not [name for name in NODES if name in text]


def test_a_tenants_jobs_equal_those_everyone_sees():
    tenant = dashboard(Rights(tenant={f"podgroups/{OURS}"}))
    mine = read(tenant, "/api/v1/jobs", "tenant")
    # Where a job stands among those of its queue is a figure of the queue.
    unread = {"position": None, "orderKeys": []}
    everything = {item["name"]: item for item in read(dashboard(), "/api/v1/jobs")["items"]}
    assert [item["name"] for item in mine["items"]] == ["ours-runs", "ours-waits"]
    assert mine["items"] == [{**everything["ours-runs"], "nodes": ["a node"]}, {**everything["ours-waits"], **unread}]
    assert mine["source"]["complete"] is False


def test_foreign_jobs_on_nodes_are_of_another_queue():
    board = dashboard(Rights(tenant={f"podgroups/{OURS}", "nodes"}))
    users = [
        user
        for node in read(board, "/api/v1/nodes", "tenant")["items"]
        for gpu in node["gpus"]
        for user in gpu["users"]
    ]
    assert {(user["job"], user["queue"]) for user in users if user["namespace"] != OURS} == {
        ("another job", "another queue")
    }
    assert {user["job"] for user in users if user["namespace"] == OURS} == {"ours-runs"}


def test_a_node_shows_own_jobs_and_foreign_totals():
    board = dashboard(Rights(tenant={f"podgroups/{OURS}", "nodes"}))
    node = read(board, "/api/v1/nodes/basalt-1", "tenant")
    assert [(user["job"], user["queue"], user["gpus"]) for user in node["users"]] == [
        (f"{OURS}/ours-runs", "team-amber", 2.0),
        ("another namespace/another job", "another queue", 2.0),
    ]
    assert [job for each in node["keptAway"] for job in each["jobs"]] == ["ours-waits"]


def evicted(number, namespace, job, gainer=""):
    home = OURS if gainer.startswith("ours") else THEIRS if gainer else ""
    queue = "team-amber" if namespace == OURS else "team-zebra"
    facts = {"number": number, "time": 1_700_000_000.0 + number, "kind": "evicted", "queue": queue}
    gains = {"cause": "reclaim", "for_namespace": home, "for_job": gainer}
    return Happening(namespace=namespace, job=job, pods=2, gpus=4.0, nodes=NODES, **facts, **gains)


def line(number):
    return CycleLine(number=number, time=0.0, took=0.1, phases={"allocate": 0.1}, counts={"started": 7})


def test_past_evictions_are_shown_to_the_losing_namespace():
    told = [evicted(0, OURS, "ours-runs", "walrus"), evicted(0, THEIRS, "quokka", "ours-waits")]
    others = [evicted(0, THEIRS, "quokka", "walrus")]
    for token, rights, count in (("", None, 6), ("tenant", Rights(tenant={f"podgroups/{OURS}"}), 2)):
        board = dashboard(rights)
        board.answers.feed.remember(line(0), told + others)
        document = read(board, "/api/v1/evictions", token)
        assert len(document["past"]) == count
        assert {each["gpus"] for each in document["past"]} == {2.0}
        text = json.dumps(document)
        assert [secret for secret in SECRETS if secret in text] == ([] if token else list(SECRETS))
        assert document["lookedAt"] == ["service"]


def test_only_the_queues_are_shown_that_may_be_read():
    board = dashboard(Rights(tenant={f"podgroups/{OURS}", "queues/team-amber"}, reader={"queues"}))
    assert [item["name"] for item in read(board, "/api/v1/queues", "tenant")["items"]] == ["team-amber"]
    assert len(read(board, "/api/v1/queues", "reader")["items"]) == 3
    assert asked(board, "/api/v1/queues/team-zebra", "tenant").status == 403


def test_a_file_of_everything_takes_every_right():
    async def made():
        return Response(body=b"zip")

    board = dashboard(Rights(tenant={f"podgroups/{OURS}"}, admin={*ALL, "pods"}))
    board.snapshot = made
    assert asked(board, "/snapshot.zip", "tenant").status == 403
    assert asked(board, "/snapshot.zip", "admin").body == b"zip"


def test_a_shadows_agreement_needs_all_rights():
    async def made():
        return Response(body=b"zip")

    board = dashboard(Rights(tenant={f"podgroups/{OURS}"}, admin={*ALL, "pods"}))
    board.shadow = made
    assert asked(board, "/api/v1/shadow", "tenant").status == 403
    assert asked(board, "/api/v1/shadow", "admin").body == b"zip"
    assert asked(dashboard(), "/api/v1/shadow").status == 404


def test_without_a_leading_cycle_answers_are_unavailable():
    board = dashboard(last=None)
    assert asked(board, "/api/v1/jobs").status == 503
    board.answers.feed.show(LAST)
    assert asked(board, "/api/v1/jobs").status == 200
    board.answers.feed.hide()
    assert asked(board, "/api/v1/jobs").status == 503


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/nothing", 404),
        ("/api/v1/jobs/only", 404),
        ("/api/v1/jobs/a/b/c", 404),
        ("/api/v1/nodes/n1", 404),
        ("/api/v1/nodes/basalt-1/gpus", 404),
        ("/api/v1/evictions/x", 404),
        ("/api/v1/evictions?pod=x", 400),
        ("/api/v1/jobs?sort=x", 400),
        (f"/api/v1/jobs/{OURS}/nobody", 404),
        ("/api/v1/queues/none", 404),
    ],
)
def test_what_is_not_there_is_said_in_one_line(path, status):
    response = asked(dashboard(), path)
    assert response.status == status
    assert json.loads(response.body)["error"]


def test_only_reading_is_answered():
    request = Request(method="POST", path="/api/v1/jobs", peer="127.0.0.1", headers={"Host": "localhost"})
    assert anyio.run(dashboard().respond, request).status == 405
    request = attrs.evolve(request, method="DELETE")
    assert anyio.run(dashboard().respond, request).status == 405


def test_browsers_may_load_nothing_foreign_and_cache_nothing():
    headers = asked(dashboard(), "/api/v1/jobs").headers
    assert headers["Cache-Control"] == "no-store"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_equal_scopes_share_one_computed_answer():
    board = dashboard(Rights(one={f"podgroups/{OURS}"}, two={f"podgroups/{OURS}"}))
    first = asked(board, "/api/v1/jobs", "one")
    assert asked(board, "/api/v1/jobs", "two").body is first.body


# --- Many, and long ------------------------------------------------------------------------------------------------


def test_a_limit_pages_any_list():
    board = dashboard()
    whole = [item["name"] for item in read(board, "/api/v1/jobs")["items"]]
    assert "continue" not in read(board, "/api/v1/jobs")
    names, more = [], "0"
    while more is not None:
        page = read(board, f"/api/v1/jobs?limit=2{'' if more == '0' else f'&continue={more}'}")
        assert len(page["items"]) <= 2
        names += [item["name"] for item in page["items"]]
        more = page["continue"]
    assert names == whole
    for kind, count in (("queues", 3), ("nodes", 2), ("waiting", 2)):
        page = read(board, f"/api/v1/{kind}?limit=1")
        assert (len(page["items"]), page["continue"]) == (1, "1")
        last = read(board, f"/api/v1/{kind}?limit=1&continue={count - 1}")
        assert (len(last["items"]), last["continue"]) == (1, None)


@pytest.mark.parametrize(
    "path",
    [
        "jobs?limit=0",
        "jobs?limit=-1",
        "jobs?limit=x",
        "jobs?limit=9999999999",
        "nodes?continue=",
        "nodes/basalt-1?limit=1",
    ],
)
def test_an_invalid_limit_is_refused(path):
    response = asked(dashboard(), f"/api/v1/{path}")
    assert (response.status, "parameter" in json.loads(response.body)["error"]) == (400, True)


class Slow:
    """A thread that takes as long as it is told, of virtual time, and goes on when a reader leaves."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.begun = 0
        self.tasks = None

    async def run_sync(self, function, *arguments, **_):
        self.begun += 1
        arguments[0].has_begun = True
        done = anyio.Event()
        self.tasks.start_soon(self._finish, function, arguments, done, found := [])
        await done.wait()
        return found[0]

    async def _finish(self, function, arguments, done, found):
        await anyio.sleep(self.seconds)
        found.append(function(*arguments))
        done.set()


def in_virtual_time(monkeypatch, seconds, scenario):
    slow = Slow(seconds)
    monkeypatch.setattr(answer_cache.to_thread, "run_sync", slow.run_sync)

    async def whole():
        async with anyio.create_task_group() as slow.tasks:
            await scenario(dashboard(clock=TimedClock()), slow)
            slow.tasks.cancel_scope.cancel()

    virtual_time.run(whole)


def request_for(path):
    return Request(method="GET", path=path, peer="127.0.0.1", headers={"Host": "localhost"})


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/waiting", "/"])
def test_a_slow_answer_is_503_with_retry_after(path, monkeypatch):
    async def scenario(board, slow):
        since = anyio.current_time()
        first = await board.respond(request_for(path))
        assert (first.status, first.headers["Retry-After"]) == (503, "5")
        assert anyio.current_time() - since == PATIENCE
        await anyio.sleep(15)
        again = await board.respond(request_for(path))
        assert again.status == 200
        assert slow.begun == 1

    in_virtual_time(monkeypatch, 30.0, scenario)


def test_lists_do_not_wait_for_what_decides_again(monkeypatch):
    async def scenario(board, slow):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(board.respond, request_for(f"/api/v1/jobs/{OURS}/ours-waits"))
            await anyio.sleep(1)
            slow.seconds = 0.5
            since = anyio.current_time()
            assert (await board.respond(request_for("/api/v1/queues"))).status == 200
            assert anyio.current_time() - since == 0.5

    in_virtual_time(monkeypatch, 10.0, scenario)


def test_what_no_reader_asks_for_is_forgotten(monkeypatch):
    async def scenario(board, slow):
        slow.tasks.start_soon(board.answers.run)
        await board.respond(request_for("/api/v1/jobs"))
        await anyio.sleep(30)
        await board.respond(request_for("/api/v1/jobs"))
        assert slow.begun == 1
        await anyio.sleep(120)
        assert board.answers._whole is None
        assert (await board.respond(request_for("/api/v1/jobs"))).status == 200
        assert slow.begun == 2

    in_virtual_time(monkeypatch, 0.1, scenario)


def test_answers_are_kept_up_to_so_many_bytes(monkeypatch):
    monkeypatch.setattr(answer_cache, "_MOST_BYTES", 3000)
    board = dashboard()
    for path in ("jobs", "queues", "nodes", "jobs?pods=true"):
        assert asked(board, f"/api/v1/{path}").status == 200
    sizes = [size for _, size in board.answers._kept.values()]
    assert len(sizes) == 1 or sum(sizes) <= 3000
