"""What pages show of the past: usage over a day, a week or a month, finished jobs, run-time limits, and windows."""

import re

import pytest

from kai.dashboard import answer_cache
from kai.dashboard.access import LocalAccess, TokenAccess
from kai.dashboard.answer_cache import AnswerCache
from kai.dashboard.feed import KEPT_SECONDS, Feed, Past
from kai.dashboard.pages import make_pages
from kai.dashboard.past import MOST_FINISHED
from kai.dashboard.server import Dashboard
from kai.history.database import DAY, Author, Writer
from kai.history.facts import Amounts, Ended, Held, JobFacts, NodeState, QueueFacts
from tests.doubles.two_tenants import NOW, OURS, SECRETS, THEIRS, _job, decided, ended_cycle, manifests
from tests.doubles.virtual_time import VirtualClock, run
from tests.unit.dashboard.test_pages import FACTS, request_of
from tests.unit.dashboard.test_server import Rights

HOUR = 3_600_000
T = round(NOW * 1000) // DAY * DAY
COMPANY = QueueFacts(uid="company", name="company")
OUR_QUEUE = QueueFacts(uid="team-amber", name="team-amber", parent=COMPANY)
THEIR_QUEUE = QueueFacts(uid="team-zebra", name="team-zebra", parent=COMPANY)
NODES = {name: NodeState(model="H100", capacity=Amounts(4000, 64_000, 256_000)) for name in ("basalt-1", "basalt-2")}


@pytest.fixture(autouse=True)
def _computed_at_once(monkeypatch):
    async def call(function, *arguments, **_):
        return function(*arguments)

    monkeypatch.setattr(answer_cache.to_thread, "run_sync", call)


def held(name, queue, gpus, namespace, user=""):
    job = JobFacts(uid=name, namespace=namespace, name=name, kind="Job", user=user, created=T - 13 * HOUR)
    return Held(job=job, queue=queue, model="H100", amounts=Amounts(gpus * 1000, gpus * 4000, gpus * 16_000))


def recorded(path, days=40):
    """Leave a file of some days up to T: in the last one two jobs of ours ran for six hours, and one of theirs."""
    writer = Writer.begin(str(path), Author(epoch=1, identity="a"), T - days * DAY, {}, NODES, retention=90 * DAY)
    jobs = {
        ("amber-done", "basalt-1"): held("amber-done", OUR_QUEUE, 2, OURS, user="ann"),
        ("amber-fails", "basalt-1"): held("amber-fails", OUR_QUEUE, 1, "amber-old", user="bob"),
        ("walrus-done", "basalt-2"): held("walrus-done", THEIR_QUEUE, 4, THEIRS),
    }
    writer.write(T - 12 * HOUR, jobs)
    writer.write(T - 6 * HOUR, dict(zip(jobs, (Ended.DONE, Ended.FAILED, Ended.RECLAIMED), strict=True)))
    writer.write(T)
    writer.close()
    return str(path)


@pytest.fixture
def path(tmp_path):
    return recorded(tmp_path / "history.db")


def board(path, rights=None, last=None):
    feed, clock = Feed(), VirtualClock()
    feed.show(ended_cycle() if last is None else last)
    answers = AnswerCache(feed, clock)
    access = LocalAccess() if rights is None else TokenAccess(Rights(tenant=rights))
    pages = make_pages(answers, access, clock, lambda: FACTS, Past(path, clock))
    return Dashboard(answers=answers, access=access, pages=pages)


def text_of(shown, address):
    response = run(lambda: shown.respond(request_of(address, "tenant")))
    assert response.status == 200, response.body
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.body.decode()))


def body_of(shown, address):
    return run(lambda: shown.respond(request_of(address))).body.decode()


# --- Usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["/", "/queues", "/queues/team-amber", "/finished"])
def test_without_a_history_pages_say_how_to_record(address):
    assert "No history is recorded. With usageDBConfig.clientType sqlite" in text_of(board(""), address)


@pytest.mark.parametrize("address", ["/", "/queues/team-amber", "/finished"])
def test_a_history_that_cannot_be_read_is_no_failure(tmp_path, address):
    assert "The history cannot be read now." in text_of(board(str(tmp_path / "none.db")), address)


@pytest.mark.parametrize(
    ("period", "average", "of_quota", "of_whole"),
    [("day", "0.75", "18.8 %", "9.4 %"), ("week", "0.11", "2.7 %", "1.3 %"), ("month", "0.03", "0.6 %", "0.3 %")],
)
def test_a_queue_has_its_use_against_quota_and_capacity(path, period, average, of_quota, of_whole):
    text = text_of(board(path), f"/queues/team-amber?period={period}")
    words = f"18.0 GPU-hours, {average} GPUs on average: {of_quota} of its quota and {of_whole} of the cluster."
    assert words in text
    assert f"Used over the last {period}" in text


def test_queues_are_compared_on_the_capacity(path):
    text = text_of(board(path), "/?period=day")
    assert "team-zebra 24.0 1 25 % 12.5 % team-amber 18.0 0.75 18.8 % 9.4 %" in text
    assert "company 42.0 1.75 21.9 % 21.9 %" in text_of(board(path), "/queues?period=day")


def test_a_chart_has_a_bar_for_each_step(path):
    body = body_of(board(path), "/queues/team-amber?period=day")
    chart = body[body.index('<svg class="past"') :].partition("</svg>")[0]
    bars = re.findall(r'<rect x="([\d.]+)%" y="([\d.]+)%" width="([\d.]+)%" height="([\d.]+)%"', chart)
    assert len(bars) == 24
    assert [float(height) for *_, height in bars].count(75.0) == 6  # 3 GPUs, on an axis up to the quota of 4
    assert round(sum(float(width) for *_, width, _ in bars)) == 100


def test_an_unknown_period_is_a_week(path):
    assert "Used over the last week" in text_of(board(path), "/?period=eon")


def test_a_young_history_says_how_much_it_covers(tmp_path):
    shown = board(recorded(tmp_path / "young.db", days=2))
    assert "the history is younger than a month, and has the last 2d0h of it." in text_of(shown, "/?period=month")
    assert "younger" not in text_of(shown, "/?period=day")


def test_a_reader_sees_the_past_of_own_queues_only(path):
    shown = board(path, {f"podgroups/{OURS}", "queues/team-amber"})
    for address in ("/?period=day", "/queues?period=day", "/queues/team-amber?period=day"):
        text = text_of(shown, address)
        assert "18.0" in text
        assert "24.0" not in text
        assert not [secret for secret in SECRETS if secret in text]


def test_the_file_is_read_once_in_half_a_minute(path):
    clock, asked = VirtualClock(), []
    past = Past(path, clock)

    async def ask():
        for _ in range(3):
            past.ask("question", asked.append)
        await clock.sleep(KEPT_SECONDS)
        past.ask("question", asked.append)

    run(ask)
    assert len(asked) == 2


# --- Finished jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["walrus-done", "amber-fails", "amber-done"]),
        ("name=DONE", ["walrus-done", "amber-done"]),
        ("queue=company", ["walrus-done", "amber-fails", "amber-done"]),
        ("queue=team-amber&state=failed", ["amber-fails"]),
        ("user=an", ["amber-done"]),
        ("state=unheard", ["walrus-done", "amber-fails", "amber-done"]),
        ("before=soon", ["walrus-done", "amber-fails", "amber-done"]),
        ("name=none", []),
    ],
)
def test_finished_jobs_are_searched(path, query, names):
    body = body_of(board(path), f"/finished?{query}")
    assert re.findall(r'<th scope="row">([^<]*)<', body) == names
    assert ("No job like this has ended within the last week." in body) is not names


def test_a_finished_job_has_wait_run_end_and_hours(path):
    text = text_of(board(path), "/finished?name=amber-fails")
    assert "amber-fails amber-old · Job team-amber bob 1 1h00m 6h00m ✕ failed 2023-11-13 18:00:00 UTC 6 6" in text


def test_finished_jobs_have_pages(tmp_path):
    path = recorded(tmp_path / "long.db")
    count = MOST_FINISHED + 10
    author = Author(epoch=2, identity="a")
    many = {(f"job-{at}", "basalt-1"): held(f"job-{at}", OUR_QUEUE, 0, OURS) for at in range(count)}
    writer = Writer.begin(path, author, T, many, NODES, retention=90 * DAY)
    for at, key in enumerate(many):
        writer.write(T + (at + 1) * 1000, {key: Ended.DONE})
    writer.close()
    seen, address = [], "/finished"
    while True:
        body = body_of(board(path), address)
        seen += re.findall(r'<th scope="row">([^<]*)<', body)
        older = re.search(r'rel="next" href="([^"]*)"', body)
        if older is None:
            break
        address = f"/{older[1]}"
    assert seen == [*(f"job-{at}" for at in reversed(range(count))), "walrus-done", "amber-fails", "amber-done"]
    assert 'href="finished">newest</a>' in body


def test_a_reader_sees_finished_jobs_of_own_namespaces_only(path):
    one = text_of(board(path, {f"podgroups/{OURS}"}), "/finished")
    both = text_of(board(path, {f"podgroups/{OURS}", "podgroups/amber-old"}), "/finished")
    assert ("amber-done" in one, "amber-fails" in one) == (True, False)
    assert ("amber-done" in both, "amber-fails" in both) == (True, True)  # no job of that namespace is there any more
    assert "Only the jobs that you may see are shown" in one
    assert not [secret for secret in SECRETS if secret in both]


def test_a_reader_finds_no_jobs_by_queues_of_others(path):
    rights = {f"podgroups/{OURS}", "podgroups/amber-old"}
    assert "amber-done" not in text_of(board(path, rights), "/finished?queue=company")
    assert "amber-done" in text_of(board(path, {*rights, "queues/company"}), "/finished?queue=company")


def test_no_job_of_others_changes_what_a_reader_sees(path, tmp_path):
    other = recorded(tmp_path / "other.db")
    writer = Writer.begin(other, Author(epoch=2, identity="a"), T, {}, NODES, retention=90 * DAY)
    many = {(f"walrus-{at}", "basalt-2"): held(f"walrus-{at}", THEIR_QUEUE, 1, THEIRS) for at in range(60)}
    writer.write(T + 10_000, many)
    writer.write(T + 50_000, dict.fromkeys(many, Ended.DONE))
    writer.close()
    rights = {f"podgroups/{OURS}", "queues/team-amber"}
    for address in ("/", "/queues", "/queues/team-amber?period=day", "/finished", "/finished?queue=team-zebra"):
        assert text_of(board(path, rights), address) == text_of(board(other, rights), address)
    assert text_of(board(path), "/finished") != text_of(board(other), "/finished")


def test_without_the_right_no_finished_job_is_shown(path):
    text = text_of(board(path, {"queues"}), "/finished")
    assert "Not shown: it takes the right to list podgroups" in text
    assert "done 2023" not in text


def test_what_a_reader_types_is_not_replaced(path):
    body = body_of(board(path), "/finished?name=%22><b>")
    assert '<section id="search">' in body
    assert '<section id="finished" data-live>' in body
    assert "http-equiv" not in body
    assert "<b>" not in body


def test_a_queue_leads_to_its_finished_jobs(path):
    assert 'href="../finished?queue=team-amber"' in body_of(board(path), "/queues/team-amber")


# --- Limits and windows ----------------------------------------------------------------------------------------------


def limited(**annotations):
    """Return a cycle in which our jobs have annotations, and the queue above them a limit of two days."""
    made = []
    for each in (*manifests(), *_job(OURS, "ours-later", "team-amber", 64)):
        name = each["metadata"]["name"]
        if each["kind"] == "Queue" and name == "company":
            made.append({**each, "spec": {**each["spec"], "maxRuntime": "48h"}})
        elif each["kind"] == "PodGroup" and name == "ours-runs":
            status = {"runningSince": "2023-11-14T20:13:20Z", "consumedRuntime": "1h"}
            made.append({**each, "metadata": {**each["metadata"], "annotations": annotations}, "status": status})
        else:
            made.append(each)
    return decided(made, took=10.0, phases={})


@pytest.mark.parametrize(
    ("policy", "words"),
    [("fail", "kai ends it then, and it does not run again"), ("requeue", "kai evicts its pods then, and it waits")],
)
def test_a_running_job_says_when_its_limit_ends_it(policy, words):
    last = limited(**{"kai.scheduler/max-runtime": "12h", "kai.scheduler/runtime-policy": policy})
    text = text_of(board("", last=last), f"/jobs/{OURS}/ours-runs")
    begin = "Run time: ends at 2023-11-15 07:13:20 UTC at the latest, in 9h00m, by a limit of 12h00m"
    assert f"{begin} (annotation kai.scheduler/max-runtime); it ran for 1h00m before. {words}" in text
    assert "1 longer limit holds too." in text


def test_a_waiting_job_says_how_long_it_may_run():
    text = text_of(board("", last=limited()), f"/jobs/{OURS}/ours-later")
    assert "Run time: may run for 2d0h at most (queue company: spec.maxRuntime). kai ends it then" in text
    assert "Run time" not in text_of(board(""), f"/jobs/{OURS}/ours-waits")


def test_the_queue_of_a_limit_needs_its_right():
    address = f"/jobs/{OURS}/ours-later"
    text = text_of(board("", {f"podgroups/{OURS}"}, limited()), address)
    assert "at most (another queue)" in text
    assert "company" not in text
    assert "queue company" in text_of(board("", {f"podgroups/{OURS}", "queues/company"}, limited()), address)


def test_the_bars_of_a_week_fill_each_day():
    night = {"name": "night", "start": "0 20 * * *", "duration": "12h", "resources": {"gpu": {"quota": 2}}}
    made = [
        {**each, "spec": {**each["spec"], "schedules": [night]}} if each["metadata"]["name"] == "team-amber" else each
        for each in manifests()
    ]
    body = body_of(board("", last=decided(made, took=10.0, phases={})), "/queues/team-amber")
    days = re.findall(r'data-l="0 to 24 h"><svg aria-hidden="true">(.*?)</svg>', body)
    bars = [re.findall(r'y="([\d.]+)%" width="([\d.]+)%" height="([\d.]+)%"', day) for day in days]
    assert len(bars) == 7
    assert all(round(sum(float(width) for _, width, _ in day)) == 100 for day in bars)
    assert [(top, height) for top, _, height in bars[1]] == [("50", "50"), ("0", "100"), ("50", "50")]


def test_a_limit_that_is_over_says_so():
    last = limited(**{"kai.scheduler/max-runtime": "2h"})
    assert "at the latest, which is over, by a limit of 2h00m" in text_of(
        board("", last=last), f"/jobs/{OURS}/ours-runs"
    )


def test_a_reader_sees_the_limit_of_an_own_job():
    last = limited(**{"kai.scheduler/max-runtime": "12h"})
    own = board("", {f"podgroups/{OURS}"}, last)
    assert "(annotation kai.scheduler/max-runtime)" in text_of(own, f"/jobs/{OURS}/ours-runs")
