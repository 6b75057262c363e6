"""Pages and streams: what a reader sees, that it is kept current, and when it ends."""

from contextlib import aclosing
from importlib.resources import files

import anyio
import pytest

from kai.answers.outcomes.gpu_slots import NodeSlots, Slices, SliceUser
from kai.cli.sources import Source
from kai.cluster.process.connections import Request
from kai.cluster.requesting.reviews import ReviewError
from kai.dashboard import answer_cache
from kai.dashboard.access import LocalAccess, Reader, Refused, TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.charts import racks_of
from kai.dashboard.feed import CycleLine, EndedCycle, Feed
from kai.dashboard.pages import BEAT, Address, make_pages
from kai.dashboard.server import Dashboard
from tests.doubles.two_tenants import NODES, OURS, SECRETS, ended_cycle, sliced
from tests.doubles.virtual_time import VirtualClock, run
from tests.unit.dashboard.test_server import ALL, LAST, Rights

PAGES = (
    "/",
    "/queues",
    "/queues/team-amber",
    "/jobs",
    f"/jobs/{OURS}/ours-waits",
    "/nodes",
    "/waiting",
    "/finished",
    "/cycles",
)
NODE_PAGES = tuple(f"/nodes/{name}" for name in NODES)
FACTS = (("ready", "yes", True),)


@pytest.fixture(autouse=True)
def _computed_at_once(monkeypatch):
    """Compute on the loop: in virtual time no thread could end."""

    async def call(function, *arguments, **_):
        return function(*arguments)

    monkeypatch.setattr(answer_cache.to_thread, "run_sync", call)


def dashboard(rights=None, last=LAST):
    feed = Feed()
    if last is not None:
        feed.show(last)
    clock = VirtualClock()
    answers = AnswerCache(feed, clock)
    access = LocalAccess() if rights is None else TokenAccess(rights)
    pages = make_pages(answers, access, clock, lambda: FACTS)
    return Dashboard(answers=answers, access=access, pages=pages)


def request_of(path, token="", method="GET", body=b"", **headers):
    path, _, query = path.partition("?")
    parameters = dict(part.split("=") for part in query.split("&") if part)
    headers.setdefault("Host", "localhost:8085")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return Request(method=method, path=path, peer="127.0.0.1", query=parameters, headers=headers, body=body)


def asked(board, path, token="", **more):
    return run(lambda: board.respond(request_of(path, token, **more)))


@pytest.mark.parametrize("path", PAGES)
def test_each_page_shows_first_what_is_wrong(path):
    board = dashboard()
    board.pages.facts = lambda: [("ready", "yes", True), ("newest word of the API server", "80s ago", False)]
    text = asked(board, path).body.decode()
    assert 'aria-live="off">! newest word of the API server: 80s ago · cycle 1</p>' in text


def test_a_page_of_an_empty_cluster_says_so(tmp_path):
    place = tmp_path / "empty.yaml"
    place.write_text("about: nothing\ncluster: {nodes: {}}\nqueues: {}\ngroups: {}\n")
    board = dashboard(last=EndedCycle(outcome=Source(place=str(place)).decide().outcome, took=0.0))
    told = {"/": "No node has a GPU.", "/queues": "There is no queue.", "/nodes": "There is no node."}
    for path, words in told.items():
        text = asked(board, path).body.decode()
        assert words in text
        assert "0 of 0 GPUs are free" not in text
        assert "<table" not in text


def test_the_order_of_jobs_is_told():
    assert 'aria-sort="ascending"><a href="jobs">In line' in asked(dashboard(), "/jobs").body.decode()
    assert 'aria-sort="descending"><a href="jobs?sort=gpus">GPUs' in asked(dashboard(), "/jobs?sort=gpus").body.decode()


@pytest.mark.parametrize("path", [*PAGES, *NODE_PAGES])
def test_a_page_works_with_and_without_the_script(path):
    response = asked(dashboard(), path)
    text = response.body.decode()
    assert response.status == 200
    assert response.content_type.startswith("text/html")
    # What a reader types into the search would be gone with the page.
    assert ('<noscript><meta http-equiv="refresh"' in text) is (path != "/finished")
    assert text.count("<h1>") == 1
    assert "<script>" not in text
    assert "style=" not in text
    assert "://" not in text.replace("http://www.w3.org", "")


@pytest.mark.parametrize("more", [set(), {"queues/team-amber"}, {"nodes"}])
@pytest.mark.parametrize("path", [*PAGES, *NODE_PAGES, f"/jobs/{OURS}/ours-runs"])
def test_no_page_names_another_tenant(path, more):
    board = dashboard(Rights(tenant={f"podgroups/{OURS}", *more}))
    text = asked(board, path, "tenant").body.decode()
    assert not [secret for secret in SECRETS if secret in text]
    if "nodes" not in more and path not in NODE_PAGES:
        assert not [name for name in NODES if name in text]


def test_links_lead_home_from_every_depth():
    for path, root in (("/", "./"), ("/jobs", "./"), ("/queues/team-amber", "../"), (PAGES[4], "../../")):
        text = asked(dashboard(), path).body.decode()
        assert f'<link rel="stylesheet" href="{root}static/kai.css">' in text
        assert f'data-root="{root}"' in text


def test_what_a_reader_sends_is_shown_as_text():
    board = dashboard()
    for path in ("/jobs?state=%22><script>x", "/nodes?rack=<script>x", "/jobs/a/<script>x", "/<script>x"):
        assert "<script>x" not in asked(board, path).body.decode()
    assert board.pages.templates.autoescape is True


@pytest.mark.parametrize("path", ["/queues/none", f"/jobs/{OURS}/none", "/jobs/a/b/c", "/nodes/none", "/nothing"])
def test_what_is_not_there_is_said(path):
    assert asked(dashboard(), path).status == 404


def cycles_page(line):
    board = dashboard()
    board.answers.feed.cycles.append(line)
    return asked(board, "/cycles").body.decode()


def test_times_are_told_to_the_second():
    text = cycles_page(CycleLine(number=2, time=1_767_225_600.125, took=0.5, phases={}, counts={}))
    assert '<td class="t">2026-01-01 00:00:00 UTC</td>' in text


@pytest.mark.parametrize(("took", "is_drawn"), [(0.01, True), (0.0, False)])
def test_cycles_without_duration_draw_no_durations(took, is_drawn):
    text = cycles_page(CycleLine(number=2, time=0.0, took=took, phases={}, counts={"started": 1}))
    assert ('class="axis"' in text, ">Took<" in text) == (is_drawn, is_drawn)
    assert "1 started" in text


def test_before_the_first_cycle_pages_show_a_note():
    response = asked(dashboard(last=None), "/")
    assert response.status == 200
    assert "No cycle has ended yet" in response.body.decode()


def test_5000_nodes_fold_by_rack_below_a_megabyte():
    board = dashboard(last=ended_cycle(racks=125))
    folded = asked(board, "/nodes").body.decode()
    assert len(folded) < 1_000_000
    assert (folded.count('<h2 class="rack">'), folded.count('class="gpus"')) == (127, 0)
    opened = asked(board, "/nodes?rack=rack-7").body.decode()
    assert len(opened) < 1_000_000
    assert opened.count('class="gpus"') == 40


def test_slices_show_on_their_node_by_profile():
    last = ended_cycle(besides=sliced())
    text = asked(dashboard(last=last), "/nodes").body.decode()
    assert "2 of 7 MIG slices are free: 2 of 1g.10gb." in text
    assert "rack-3 <small>1 node, 7 MIG slices, 2 free</small>" in text
    node = next(line for line in text.splitlines() if '<li><span class="name">' in line and ">basalt-3</a>" in line)
    said = "basalt-3: 2 of 7 slices 1g.10gb free; team-amber 2, team-zebra 3"
    assert node.count("<svg") == 1  # no row of GPUs beside it, which it has not
    assert f'aria-label="{said}"' in node
    assert node.count('class="cell"') == 7
    assert node.count("scale(") == 7
    # A reader of one namespace is not told whose the other slices are.
    rights = Rights(tenant={f"podgroups/{OURS}", "nodes"})
    own = asked(dashboard(rights, last), "/nodes", "tenant").body.decode()
    assert "2 of 7 slices 1g.10gb free" in own
    assert not [secret for secret in SECRETS if secret in own]


def test_a_nodes_page_shows_use_and_rest_and_refusals():
    text = asked(dashboard(), "/nodes/basalt-1").body.decode()
    assert "<h1>What runs on basalt-1, and what is free?</h1>" in text
    assert '<p class="verdict">basalt-1 is full: of 4 GPUs 4 used.</p>' in text
    assert "<p>rack-1 · besides GPUs 62 of 64 cores, 272.7 of 274.9 GB, 108 of 110 pods free</p>" in text
    assert 'aria-label="basalt-1: 0 of 4 GPUs free; team-amber 2, team-zebra 2"' in text
    ours = f'<a href="../jobs/{OURS}/ours-runs">ours-runs</a><span class="ns">{OURS}</span>'
    assert f'<tr><th scope="row">{ours}</th><td data-l="queue">team-amber</td>' in text
    assert '<a href="../jobs/cobalt/walrus-waits">walrus-waits</a>' in text
    assert '<td class="why">a pod asks for 4 GPUs, 0 GPUs idle here</td>' in text


def test_one_namespaces_reader_sees_only_its_names_on_nodes():
    rights = Rights(tenant={f"podgroups/{OURS}", "nodes"})
    text = asked(dashboard(rights), "/nodes/basalt-1", "tenant").body.decode()
    assert "basalt-1 is full: of 4 GPUs 4 used." in text
    assert ">ours-runs</a>" in text
    assert '<th scope="row">another job</th><td data-l="queue">another queue</td>' in text
    assert "Jobs of namespaces that you may not list are not looked at." in text
    assert not [secret for secret in SECRETS if secret in text]


def test_without_node_rights_any_node_looks_the_same():
    board = dashboard(Rights(tenant={f"podgroups/{OURS}"}))
    there, none = (asked(board, f"/nodes/{name}", "tenant") for name in ("basalt-1", "basalt-9"))
    assert there.status == none.status == 200
    assert there.body.decode().replace("basalt-1", "basalt-9") == none.body.decode()
    assert "Not shown: it takes the right to list nodes." in none.body.decode()


def test_node_names_link_only_for_readers_of_nodes():
    assert '<a href="./nodes/basalt-1">basalt-1</a>' in asked(dashboard(), "/nodes").body.decode()
    job = f"/jobs/{OURS}/ours-runs"
    assert '<a href="../../nodes/basalt-1">basalt-1</a>' in asked(dashboard(), job).body.decode()
    tenant = asked(dashboard(Rights(tenant={f"podgroups/{OURS}"})), job, "tenant").body.decode()
    assert '<td data-l="node">a node</td>' in tenant
    assert NODES[0] not in tenant


def test_an_unschedulable_or_gpuless_node_shows_the_cause(tmp_path):
    nodes = "{n1: {gpu: 2, taints: [disk=bad]}, n2: {cpu: 8}}"
    job = "g: {queue: a, each: {gpu: 1}}"
    text = f"about: x\ncluster: {{nodes: {nodes}}}\nqueues: {{a: {{quota: 2}}}}\ngroups: {{{job}}}\n"
    board = board_of(text, tmp_path)
    tainted = asked(board, "/nodes/n1").body.decode()
    assert "n1 is empty, 2 GPUs idle: it is tainted disk=bad:NoSchedule." in tainted
    assert "<p>No pod is on it.</p>" in tainted
    assert "Pods that do not tolerate it are kept away: it is tainted disk=bad:NoSchedule." in tainted
    bare = asked(board, "/nodes/n2").body.decode()
    assert "n2 has no GPUs; 0 pods are on it." in bare
    assert "8 of 8 cores" in bare
    assert '<svg class="gpus"' not in bare


def test_promised_slices_take_free_cells_first_then_leaving_ones():
    def user(state, count):
        return SliceUser(job="j", namespace="n", queue="q", pod=state, count=count, state=state)

    users = (user("used", 2), user("leaving", 2), user("held", 3))
    node = NodeSlots(
        name="n",
        labels={},
        ready=True,
        gpus=0,
        slots=(),
        domains={},
        slices=(Slices(resource="nvidia.com/mig-1g.10gb", total=6, users=users),),
    )
    (rack,) = racks_of([node], "", {"q": "0-0"}, "", 9)
    ((row,),) = (each.slices for each in rack.rows)
    assert [cell.state for cell in row.cells] == ["used", "used", "leaving", "leaving", "held", "held"]
    assert (row.free, row.users) == (0, "q 3 held, q 2 leaving, q 2")


# --- The form ------------------------------------------------------------------------------------------------------


def test_without_a_token_pages_only_show_its_form():
    response = asked(dashboard(Rights(anna=ALL)), "/jobs")
    text = response.body.decode()
    assert response.status == 401
    assert 'name="token"' in text
    assert "ours-runs" not in text
    assert asked(dashboard(Rights(anna=ALL)), "/static/kai.css").status == 200


def test_a_known_token_becomes_a_strict_http_cookie():
    board = dashboard(Rights(anna=ALL))
    response = asked(board, "/login", method="POST", body=b"token=anna")
    assert (response.status, response.headers["Location"]) == (303, "./")
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("kai-token=anna; ")
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert "ours-runs" in asked(board, "/jobs", Cookie="a=b; kai-token=anna").body.decode()
    board.is_encrypted = True
    assert "Secure" in asked(board, "/login", method="POST", body=b"token=anna").headers["Set-Cookie"]


@pytest.mark.parametrize("body", [b"token=unknown", b"token=", b"", b"token=anna%0d%0aSet-Cookie:x", b"\xff"])
def test_what_is_no_token_sets_no_cookie(body):
    response = asked(dashboard(Rights(anna=ALL)), "/login", method="POST", body=body)
    assert response.status == 401
    assert "Set-Cookie" not in response.headers


def test_a_form_of_another_site_is_not_heard():
    more = {"Sec-Fetch-Site": "cross-site"}
    response = asked(dashboard(Rights(anna=ALL)), "/login", method="POST", body=b"token=anna", **more)
    assert (response.status, "Set-Cookie" in response.headers) == (403, False)


def test_signing_out_takes_the_cookie_away():
    response = asked(dashboard(Rights(anna=ALL)), "/logout", method="POST")
    assert "Max-Age=0" in response.headers["Set-Cookie"]


# --- Streams -------------------------------------------------------------------------------------------------------


async def known(board, token):
    found = await board.access.reader(request_of("/", token))
    assert not isinstance(found, Refused)
    return found


def test_a_stream_sends_state_then_changes_then_heartbeats():
    async def scenario():
        board = dashboard()
        feed = board.answers.feed
        async with aclosing(board.pages.events(Reader(), Address(name="cycles"))) as stream:
            assert await anext(stream) == b"retry: 3000\n\n"
            first = (await anext(stream)).decode()
            assert [line for line in first.splitlines() if line.startswith("event: ")] == [
                "event: process",
                "event: cycles",
                "event: beat",
            ]
            since = anyio.current_time()
            assert (await anext(stream)).decode().startswith(": still here\n\nevent: beat\n")
            assert anyio.current_time() - since <= BEAT
            feed.cycles.append(CycleLine(number=2, time=0.0, took=0.5, phases={}, counts={"started": 3}))
            feed.show(ended_cycle())
            second = (await anext(stream)).decode()
            assert "3 started" in second
            assert "event: process" not in second

    run(scenario)


def test_a_slow_reader_skips_to_the_newest_state():
    async def scenario():
        board = dashboard()
        feed = board.answers.feed
        async with aclosing(board.pages.events(Reader(), Address(name="cycles"))) as stream:
            await anext(stream)
            await anext(stream)
            for number in range(2, 50):  # nothing waits for the reader, which takes none of them
                feed.cycles.append(CycleLine(number=number, time=0.0, took=0.5, phases={}, counts={}))
                feed.show(LAST)
                await anyio.sleep(1.0)
            text = (await anext(stream)).decode()
            assert text.count("event: cycles") == 1
            assert '<th scope="row" data-l="cycle">49</th>' in text
            assert board.answers.feed.revision == 49

    run(scenario)


def test_a_stream_ends_within_30_seconds_of_its_token():
    async def scenario():
        rights = Rights(anna=ALL)
        board = dashboard(rights)
        async with aclosing(board.pages.events(await known(board, "anna"), Address(name="jobs"))) as stream:
            await anext(stream)
            await anext(stream)
            await anyio.sleep(3)
            del rights.tokens["anna"]
            since = anyio.current_time()
            last = [piece async for piece in stream][-1]
            assert last.startswith(b"event: over\n")
            assert anyio.current_time() - since <= 30
            assert board.pages.streams == 0

    run(scenario)


def test_a_stream_ends_where_rights_cannot_be_looked_up():
    async def scenario():
        rights = Rights(anna=ALL)
        board = dashboard(rights)

        async with aclosing(board.pages.events(await known(board, "anna"), Address(name="jobs"))) as stream:
            await anext(stream)
            await anext(stream)
            rights.is_away = True
            rest = [piece async for piece in stream]
            assert all(b"ours-runs" not in piece for piece in rest)

    run(scenario)


def test_a_stream_ends_quietly_when_rights_are_unknown():
    class Failing(Rights):
        fails = False

        async def allows(self, identity, permission, most_age=30.0):
            if self.fails and permission.namespace:
                raise ReviewError("away", retryable=True)
            return await super().allows(identity, permission, most_age)

    async def scenario():
        rights = Failing(tenant={f"podgroups/{OURS}"})
        board = dashboard(rights)
        async with aclosing(board.pages.events(await known(board, "tenant"), Address(name="jobs"))) as stream:
            await anext(stream)
            await anext(stream)
            rights.fails = True
            assert not [piece async for piece in stream]
        assert board.pages.streams == 0

    run(scenario)


def test_a_stream_shows_only_what_its_reader_may_see():
    async def scenario():
        rights = Rights(tenant={f"podgroups/{OURS}"})
        board = dashboard(rights)
        async with aclosing(board.pages.events(await known(board, "tenant"), Address(name="jobs"))) as stream:
            await anext(stream)
            text = (await anext(stream)).decode()
            assert "ours-waits" in text
            assert not [secret for secret in SECRETS if secret in text]

    run(scenario)


def test_only_so_many_streams_are_open():
    board = dashboard()
    assert asked(board, "/events?page=nothing").status == 404
    assert asked(board, "/events?page=jobs").content_type == "text/event-stream"
    board.pages.streams = 200
    assert asked(board, "/events?page=jobs").status == 503


def test_what_waits_says_how_much_of_it_would_fit():
    text = asked(dashboard(), "/waiting").body.decode()
    assert "by GPUs alone, 0 pods of 4 GPUs would fit now, 2 on empty nodes" in text
    assert "would fit" not in asked(dashboard(Rights(tenant={f"podgroups/{OURS}"})), "/waiting", "tenant").body.decode()


@pytest.mark.parametrize(
    "path", ["/nodes/basalt-1/x", "/waiting/x", "/cycles/1", "/queues/team-amber/x", "/jobs/a/b/c"]
)
def test_an_address_below_a_page_is_none(path):
    response = asked(dashboard(), path)
    assert response.status == 404
    assert "There is no such page." in response.body.decode()


def board_of(text, tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return dashboard(last=EndedCycle(outcome=Source(place=str(path)).decide().outcome, took=0.01))


def test_nodes_without_rack_fold_under_a_title(tmp_path):
    board = board_of("about: x\ncluster: {nodes: {n1..n201: {gpu: 1}}}\nqueues: {}\ngroups: {}\n", tmp_path)
    assert asked(board, "/nodes").body.decode().count('class="gpus"') == 0
    board = dashboard(last=ended_cycle(racks=6))
    folded = asked(board, "/nodes").body.decode()
    assert "all nodes" not in folded
    (node,) = (each for each in racks_of([*plain(1)], "rack", {}, "without rack", 0))
    assert (node.name, len(node.rows)) == ("all nodes", 0)
    racks = racks_of([*plain(1), *plain(1, rack="a")], "example.com/rack", {}, "without rack", 0)
    assert [(rack.name, len(rack.rows)) for rack in racks] == [("without rack", 1), ("a", 0)]


def plain(count, **labels):
    named = {f"example.com/{key}": value for key, value in labels.items()}
    return [NodeSlots(name=f"n{at}", labels=named, ready=True, gpus=0, slots=(), domains={}) for at in range(count)]


def test_of_many_queues_those_without_a_colour_are_counted(tmp_path):
    many = "".join(f"  q{at:02}: {{parent: lab, quota: 1}}\n" for at in range(40))
    jobs = "".join(f"  j{at:02}: {{queue: q{at:02}, each: {{gpu: 1}}}}\n" for at in range(40))
    text = f"about: x\ncluster: {{nodes: {{n1: {{gpu: 40}}}}}}\nqueues:\n  lab: {{quota: 40}}\n{many}groups:\n{jobs}"
    board = board_of(text, tmp_path)
    legend = asked(board, "/nodes").body.decode().split('<ul class="legend">')[1].split("</ul>")[0]
    assert "other queues" in legend
    assert legend.count("<li>") < 40
    page = asked(board, "/jobs?queue=q33").body.decode()
    assert '<a href="./queues">20 more queues</a>' in page
    assert 'aria-current="true">q33</a>' in page


def test_a_change_that_starts_some_pods_says_how_many(tmp_path):
    text = """
about: x
cluster: {nodes: {n1: {gpu: 4}}}
queues: {lab: {quota: 8}, a: {parent: lab, quota: 8}}
groups: {g: {queue: a, members: 6, each: {gpu: 1}}}
"""
    page = asked(board_of(text, tmp_path), "/jobs/default/g").body.decode()
    assert "minimum 6 → 4</th><td>✓ 4 of 6 pods start now</td>" in page


MEMORY = """
about: One pod by memory of a GPU starts, another waits.
cluster: {nodes: {n1: {gpu: 1, gpu_memory: 40000}}}
queues: {root: {quota: 1}, a: {parent: root, quota: 1}}
groups:
  starts: {queue: a, each: {gpu_memory: 30000}}
  waits: {queue: a, each: {gpu_memory: 20000}}
"""


def test_gpu_memory_shows_as_requested_and_as_held(tmp_path):
    board = board_of(MEMORY, tmp_path)

    async def told():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(board.answers.feed.run)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()

    run(told)
    (happened,) = board.answers.feed.happenings
    assert (happened.kind, happened.job, happened.gpus) == ("started", "starts", 0.75)
    jobs = asked(board, "/jobs").body.decode()
    assert '<td class="n" data-l="GPUs">30000Mi</td>' in jobs
    assert '<td class="n" data-l="GPUs">20000Mi</td>' in jobs
    assert "1 pod, 30000Mi of GPUs, which hold 0.75 GPUs" in asked(board, "/jobs/default/starts").body.decode()
    assert "0.5 GPUs" in asked(board, "/waiting").body.decode()


def test_long_lists_have_pages_that_link(tmp_path):
    many = "".join(f"  q{at:03}: {{parent: lab, quota: 1}}\n" for at in range(450))
    jobs = "".join(f"  j{at:03}: {{queue: q{at:03}, each: {{gpu: 1}}}}\n" for at in range(450))
    text = f"about: x\ncluster: {{nodes: {{n1: {{gpu: 4}}}}}}\nqueues:\n  lab: {{quota: 40}}\n{many}groups:\n{jobs}"
    board = board_of(text, tmp_path)
    for path, rows, last in (("/queues", 451, 3), ("/jobs", 450, 3), ("/waiting", 446, 9)):
        first = asked(board, path).body.decode()
        assert f"{rows} " in first
        assert f"page 1 of {last} " in first
        assert f'<a rel="next" href="{path[1:]}?page=2">next</a>' in first
        assert 'rel="prev"' not in first
        assert len(first) < 400_000
        end = asked(board, f"{path}?page={last}").body.decode()
        assert f'<a rel="prev" href="{path[1:]}?page={last - 1}">previous</a>' in end
        assert 'rel="next"' not in end
        for beyond in ("99", "0", "x", "9999999999"):
            assert asked(board, f"{path}?page={beyond}").status == 200
    # What is chosen begins on its first page.
    assert 'href="jobs?sort=gpus"' in asked(board, "/jobs?page=2").body.decode()
    assert "446 jobs wait, for 1 reason in 446 queues: " in asked(board, "/waiting?page=9").body.decode()
    assert "430 other queues 0" in asked(board, "/").body.decode()


def test_above_the_fair_share_is_drawn_unlike_queues():
    templates = files("kai.dashboard").joinpath("templates")
    queues = templates.joinpath("queues.html").read_text("utf-8")
    assert 'class="lent"' in queues
    assert "its pale end: above the fair share" in queues
    # Stripes, crosses and dots are colours of queues.
    assert "url(#over)" not in queues + templates.joinpath("base.html").read_text("utf-8")


def test_numbers_that_prove_a_reason_are_told_apart(tmp_path):
    """HTML makes one space of three, so the numbers ran together: `quota 2 non-preemptible used 1 this job 3`."""
    place = tmp_path / "over.yaml"
    place.write_text(
        "about: over quota\ncluster: {nodes: {n1: {gpu: 8}}}\nqueues: {root: {quota: 8}, a: {parent: root, quota: 2}}\n"
        "groups:\n"
        "  one: {queue: a, preemptible: false, each: {gpu: 1}, runs_on: n1}\n"
        "  two: {queue: a, preemptible: false, each: {gpu: 3}}\n"
    )
    board = dashboard(last=EndedCycle(outcome=Source(place=str(place)).decide().outcome, took=0.0))
    text = asked(board, "/jobs/default/two").body.decode()
    assert "quota 2 · non-preemptible used 1 · this job 3 · over by 2" in text
    assert "What to write for: " in text


def test_a_queues_page_shows_its_use_of_models(tmp_path):
    text = """
about: x
cluster: {nodes: {n1: {gpu: 4, model: h100}}}
queues: {lab: {quota: 8}, a: {parent: lab, quota: 8, models: {h100: {quota: 4, limit: 3}}}}
groups: {g: {queue: a, members: 2, each: {gpu: 1}, runs_on: n1}}
"""
    board = board_of(text, tmp_path)
    page = asked(board, "/queues/a").body.decode()
    cells = {"quota": 4, "owed now": 2, "limit": 3, "used": 2}
    row = "".join(f'<td class="n" data-l="{name}">{value}</td>' for name, value in cells.items())
    assert f'<th scope="row">h100</th>{row}' in page
    assert "Models of GPUs" not in asked(board, "/queues/lab").body.decode()
