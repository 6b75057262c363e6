"""Reports as tables: their rows, the days of a time zone, and the commands that show them."""

import datetime as dt
import json
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
import yaml
from click.testing import CliRunner

from kai.answers.documents.document import API_VERSION
from kai.cli.command import kai
from kai.cli.console import Console, yaml_text
from kai.cli.listing import report as report_module
from kai.cli.listing.report import report_command
from kai.cli.output_kinds import kind_schema
from kai.history.database import reading
from kai.history.facts import Amounts, Ended, NodeState, QueueFacts
from kai.history.tables import BUDGETS, KINDS, Span, report, rows_of, spans
from tests.unit.cli.schemas.test_jsonschemas import faults
from tests.unit.history.test_database import HOUR, TEAM, TOP, begun, held

T = round(dt.datetime(2026, 10, 24, 22, tzinfo=dt.UTC).timestamp() * 1000)
"""Midnight in Berlin, on the day on which clocks there are set back."""
NODES = {"n1": NodeState(model="H100", capacity=Amounts(8000, 64000, 512000))}
OTHER = QueueFacts(uid="other", name="other", parent=TOP)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "history.db"
    writer = begun(made, T, nodes=NODES)
    writer.write(T, {("a", "n1"): held(2, "a", user="ann", created=T - 60_000), ("b", "n1"): held(1, "b", OTHER)})
    writer.write(T + 10 * HOUR, {("a", "n1"): Ended.RECLAIMED})
    writer.write(T + 30 * HOUR, {("b", "n1"): Ended.DONE})
    writer.write(T + 49 * HOUR)
    return made


def rows(path, kind, since=T, until=T + 49 * HOUR):
    with reading(str(path)) as connection:
        return list(rows_of(connection, kind, Span(since=since, until=until)))


def said(rows, *keys):
    return [tuple(row[key] for key in keys) for row in rows]


def test_parent_queues_sum_their_children(path):
    assert said(rows(path, "queues"), "queue", "depth", "jobs", "gpuHours", "lostGpuHours", "percent") == [
        ("top", 0, 2, 50.0, 20.0, 100.0),
        ("other", 1, 1, 30.0, 0.0, 60.0),
        ("team", 1, 1, 20.0, 20.0, 40.0),
    ]


def test_other_reports_are_by_what_they_are_called(path):
    assert said(rows(path, "users"), "user", "gpuHours") == [("(unknown)", 30.0), ("ann", 20.0)]
    assert said(rows(path, "sizes"), "gpus", "gpuHours") == [("1", 30.0), ("2 to 3", 20.0)]
    assert said(rows(path, "models"), "model", "gpuHours") == [("H100", 50.0)]
    assert said(rows(path, "nodes"), "node", "gpuHours") == [("n1", 50.0)]
    assert said(rows(path, "namespaces"), "namespace", "jobs") == [("ns", 2)]
    assert said(rows(path, "endings"), "why", "gpuHours") == [("done", 30.0), ("reclaimed", 20.0)]
    assert said(rows(path, "endings", until=T + HOUR), "why", "gpuHours") == [("reclaimed", 2.0), ("done", 1.0)]


def test_an_evicted_job_that_runs_again_is_one_job(tmp_path):
    made = tmp_path / "again.db"
    writer = begun(made, T, nodes=NODES)
    for hour, now in (
        (0, held(2, "a", user="ann")),
        (10, Ended.RECLAIMED),
        (12, held(2, "a", user="ann")),
        (20, Ended.DONE),
    ):
        writer.write(T + hour * HOUR, {("a", "n1"): now})
    for kind in ("queues", "users", "namespaces", "sizes", "nodes"):
        assert {each[:3] for each in said(rows(made, kind), "jobs", "gpuHours", "lostGpuHours")} == {(1, 36.0, 20.0)}
    assert said(rows(made, "endings"), "why", "jobs", "gpuHours") == [("reclaimed", 1, 20.0), ("done", 1, 16.0)]
    (job,) = rows(made, "jobs")
    assert (job["gpuHours"], job["lostGpuHours"], job["endedBy"]) == (36.0, 20.0, "done")


def test_jobs_are_in_the_order_of_their_start(path):
    keys = ("job", "queue", "user", "gpus", "waitSeconds", "runSeconds", "endedBy")
    assert said(rows(path, "jobs"), *keys) == [
        ("ns/a", "team", "ann", 2.0, 60.0, 36_000.0, "reclaimed"),
        ("ns/b", "other", "", 1.0, None, 108_000.0, "done"),
    ]


def test_utilisation_has_each_part_of_the_capacity(path):
    (gpu, *_) = rows(path, "utilisation")
    assert [gpu[f"{each}Hours"] for each in ("capacity", "held", "idle", "down", "over")] == [392.0, 50.0, 342.0, 0, 0]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/New_York", "2026-03-08", 23),
        ("America/New_York", "2026-11-01", 25),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("America/Santiago", "2026-09-06", 23),
        ("America/Santiago", "2026-04-04", 25),
        ("Africa/Cairo", "2026-04-24", 23),
        ("Asia/Kolkata", "2026-03-29", 24),
        ("UTC", "2026-03-29", 24),
        ("Europe/London", "2026-10-25", 25),
    ],
)
def test_a_day_is_as_long_as_its_clocks_say(zone, day, hours):
    place = ZoneInfo(zone)
    begin = dt.datetime.combine(dt.date.fromisoformat(day) - dt.timedelta(days=2), dt.time(), place).timestamp()
    found = list(spans(round(begin * 1000), round(begin * 1000) + 5 * 24 * HOUR, "day", place))
    (length,) = [each.until - each.since for each in found if each.name == day]
    assert length == hours * HOUR
    assert all(one.until == other.since for one, other in pairwise(found))


def test_weeks_begin_on_monday_and_months_on_the_first():
    begin, end = (round(dt.datetime(2026, *each, tzinfo=dt.UTC).timestamp() * 1000) for each in ((1, 30), (3, 3)))
    zone = ZoneInfo("UTC")
    assert [each.name for each in spans(begin, end, "month", zone)] == ["2026-01", "2026-02", "2026-03"]
    assert [each.name for each in spans(begin, end, "week", zone)][:2] == ["2026-01-26", "2026-02-02"]


def test_a_reports_days_sum_to_the_whole(path):
    zone = ZoneInfo("Europe/Berlin")
    with reading(str(path)) as connection:
        span = Span(since=T, until=T + 49 * HOUR)
        (whole, *_) = report(connection, "utilisation", span, zone=zone).spans[0][1]
        days = report(connection, "utilisation", span, by="day", zone=zone)
        parts = [next(iter(part)) for _, part in days.spans]
    assert [each["capacityHours"] for each in parts] == [200.0, 192.0]
    for key in ("capacityExact", "heldExact", "idleExact"):
        assert sum(part[key] for part in parts) == whole[key]


def ran(*words):
    return CliRunner().invoke(kai, words)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["table", "wide", "csv", "json", "yaml", "html"])
def test_the_same_file_gives_the_same_bytes(path, kind, form, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    words = ("report", kind, "--file", str(path), "--from", "2026-10-24", "--tz", "Europe/Berlin", "-o", form)
    first, second = ran(*words), ran(*words)
    assert (first.exit_code, first.output) == (0, second.output)
    assert first.output


@pytest.mark.parametrize("kind", KINDS)
def test_reports_for_machines_have_an_envelope_and_a_schema(path, kind):
    document = json.loads(ran("report", kind, "--file", str(path), "-o", "json").output)
    assert (document["apiVersion"], document["kind"], document["report"]) == (API_VERSION, "UsageReport", kind)
    assert document["source"]["type"] == "history"
    assert document["recordedUntil"] == "2026-10-26T23:00:00Z"
    assert faults(document, kind_schema("UsageReport")) == []


@pytest.mark.parametrize(("words", "queue"), [(("history",), None), (("history", "team"), "team")])
def test_history_for_machines_has_an_envelope_and_a_schema(path, words, queue):
    document = json.loads(ran(*words, "--file", str(path), "-o", "json").output)
    assert (document["apiVersion"], document["kind"], document["queue"]) == (API_VERSION, "UsageHistory", queue)
    assert document["items"]
    assert faults(document, kind_schema("UsageHistory")) == []


def test_a_table_of_queues(path):
    assert ran("report", "queues", "--file", str(path), "--from", "2d").output.splitlines()[:3] == [
        "queues: 2026-10-24T23:00:00Z to 2026-10-26T23:00:00Z",
        "QUEUE    JOBS  GPU HOURS  CPU HOURS  GIGABYTE HOURS  LOST GPU HOURS     %",
        "top         2         47        188             752              18   100",
    ]


def test_a_long_report_is_written_in_parts(path, monkeypatch):
    words = ("report", "jobs", "--file", str(path), "--from", "2026-10-24")
    whole = ran(*words, "-o", "csv").output
    monkeypatch.setattr(report_module, "_BLOCK", 1)
    assert ran(*words, "-o", "csv").output == whole
    assert whole.splitlines()[1].startswith("2026-10-24T00:00:00Z,2026-10-26T23:00:00Z,ns/a,")
    assert [line.split()[0] for line in ran(*words).output.splitlines()] == ["jobs:", "JOB", "ns/a", "JOB", "ns/b"]
    assert ran(*words, "-o", "html").output.count("<tr><th>JOB</th>") == 1


@pytest.mark.parametrize("block", [1, 1000])
@pytest.mark.parametrize(
    "words", [(), ("--by", "day", "--from", "4d"), ("--from", "0h"), ("--by", "day", "--from", "0h")]
)
def test_documents_in_parts_equal_those_in_one(path, block, words, monkeypatch):
    monkeypatch.setattr(report_module, "_BLOCK", block)
    asked = ("report", "jobs", "--file", str(path), *words)
    found = ran(*asked, "-o", "json").output
    assert found == json.dumps(json.loads(found)) + "\n"
    lines = ran(*asked, "-o", "yaml").output
    assert lines == f"---\n{yaml_text(yaml.safe_load(lines), Console(output='yaml'))}\n"
    assert yaml.safe_load(lines)["spans"] == json.loads(found)["spans"]


@pytest.mark.parametrize(("form", "words"), [("csv", "from,to"), ("table", "nothing was held"), ("html", "nothing")])
def test_a_report_without_rows_says_so(path, form, words):
    asked = ("report", "jobs", "--file", str(path), "--from", "2026-10-01", "--to", "2026-10-02", "-o", form)
    assert words in ran(*asked).output


def test_no_time_zone_is_utc(path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # documents have the time at which they were made
    words = ("report", "queues", "--file", str(path), "--by", "day", "--from", "2d", "-o", "json")
    assert ran(*words, "--tz", "").output == ran(*words, "--tz", "UTC").output == ran(*words).output


def test_evictions_are_by_queue_and_reason(path):
    assert said(rows(path, "evictions"), "queue", "why", "jobs", "lostGpuHours") == [("team", "reclaimed", 1, 20.0)]


def test_a_page_shows_names_as_text(tmp_path):
    made = tmp_path / "history.db"
    writer = begun(made, T, nodes=NODES)
    writer.write(T, {("a", "n1"): held(2, "a", TEAM, user="<script>")})
    writer.write(T + HOUR)
    page = ran("report", "users", "--file", str(made), "-o", "html").output
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_the_history_of_a_queue_by_day(path):
    words = ("history", "team", "--file", str(path), "--from", "2026-10-25", "--tz", "Europe/Berlin")
    lines = ran(*words).output.splitlines()
    assert [line.split()[:5] for line in lines[2:]] == [
        ["2026-10-25", "25", "20", "200", "10.0"],
        ["2026-10-26", "24", "0", "192", "0.0"],
    ]
    items = json.loads(ran(*words, "-o", "json").output)["items"]
    assert [each["held"] for each in items] == [20 * 3_600_000_000, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("history", "nobody"), "queue: found 'nobody', expected one of other, team, top"),
        (("report", "jobs", "--tz", "Mars/Base"), "--tz: found 'Mars/Base', expected an IANA time zone"),
        (("report", "jobs", "--from", "soon"), "--from: found 'soon', expected a day"),
        (("report", "jobs", "--from", "2027-01-01"), "expected a time before --to"),
        (("report", "jobs", "--queues", "q.yaml"), "--queues: found 'q.yaml', expected none with the report jobs"),
        (("report", "budgets"), "--queues: found nothing, expected a file with queues, or - for standard input"),
        (("report", "budgets", "--queues", "none.yaml"), "--queues: none.yaml: No such file or directory"),
        (("report", "budgets", "--queues", "none.yaml", "--by", "day"), "--by: found day, expected none with budgets"),
    ],
)
def test_what_cannot_be_asked_is_refused(path, words, message):
    found = ran(*words, "--file", str(path))
    assert found.exit_code != 0
    assert message in str(found.exception)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "found no file" in str(ran("history", "--file", str(tmp_path / "none.db")).exception)


def test_the_help_of_reports_names_each_of_them():
    assert report_command.help is not None
    listed = report_command.help.partition("REPORT is one of ")[2].rstrip(".\n ").replace(" and ", ", ")
    assert tuple(" ".join(listed.split()).split(", ")) == (*KINDS, BUDGETS)


QUEUES = """
kind: List
apiVersion: v1
items:
- apiVersion: scheduling.run.ai/v2
  kind: Queue
  metadata: {name: team, creationTimestamp: "2025-01-01T00:00:00Z"}
  spec:
    budgets:
    - {name: month, amount: 100, weights: [{model: h100, weight: 2}], refund: [nodeFailure]}
    - {name: day, amount: 30, period: daily, timeZone: Europe/Berlin, carryOver: 0.5}
  status: {budgets: [{name: month, since: "2026-10-01T00:00:00Z", at: "2026-10-26T23:00:00Z", spent: 1, committed: 8}]}
- apiVersion: scheduling.run.ai/v2
  kind: Queue
  metadata: {name: other}
  spec: {budgets: [{name: all, amount: 60, period: once}]}
- {apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: plain}}
"""


@pytest.fixture
def queues(tmp_path):
    made = tmp_path / "queues.yaml"
    made.write_text(QUEUES, encoding="utf-8")
    return made


def budget_report(path, queues, *words):
    answer = ran("report", "budgets", "--file", str(path), "--queues", str(queues), *words, "-o", "json")
    return json.loads(answer.output)


def test_budgets_are_reported_with_who_used_them(path, queues):
    document = budget_report(path, queues)
    assert faults(document, kind_schema("UsageReport")) == []
    (span,) = document["spans"]
    keys = ("queue", "budget", "user", "amountHours", "spentHours", "committedHours", "leftHours", "percent", "resets")
    assert said(span["rows"], *keys) == [
        ("other", "all", "(all)", 60.0, 30.0, None, 30.0, 50.0, None),
        ("other", "all", "(unknown)", None, 30.0, None, None, 50.0, None),
        ("team", "month", "(all)", 100.0, 40.0, 8.0, 52.0, 40.0, "2026-11-01T00:00:00Z"),
        ("team", "month", "ann", None, 40.0, None, None, 40.0, "2026-11-01T00:00:00Z"),
        ("team", "day", "(all)", 45.0, 0.0, None, 45.0, 0.0, "2026-10-27T23:00:00Z"),
    ]


def test_each_period_of_the_time_has_its_rows(path, queues):
    rows = budget_report(path, queues, "--from", "2026-10-25", "--tz", "Europe/Berlin")["spans"][0]["rows"]
    days = [row for row in rows if row["budget"] == "day"]
    assert said(days, "user", "begins", "amountHours", "carriedHours", "spentHours") == [
        ("(all)", "2026-10-24T22:00:00Z", 45.0, 15.0, 20.0),
        ("ann", "2026-10-24T22:00:00Z", None, None, 20.0),
        ("(all)", "2026-10-25T23:00:00Z", 35.0, 5.0, 0.0),
    ]
    assert all(row["amountExact"] - row["spentExact"] == row["leftExact"] for row in days if row["user"] == "(all)")


@pytest.mark.parametrize("form", ["table", "wide", "csv", "yaml", "html"])
def test_budgets_have_the_forms_of_other_reports(path, queues, form):
    text = ran("report", "budgets", "--file", str(path), "--queues", str(queues), "-o", form).output
    assert "month" in text
    assert "ann" in text


def test_tables_and_pages_show_the_clock_of_the_zone(path):
    words = ("report", "jobs", "--file", str(path), "--from", "2026-10-25", "--tz", "Europe/Berlin", "-o")
    for form in ("table", "html"):
        text = ran(*words, form).output
        assert "jobs: 2026-10-25 00:00:00+02:00 to" in text
        assert "(Europe/Berlin)" in text
        assert "2026-10-24T22" not in text
    assert "2026-10-24T22:00:00Z" in ran(*words, "csv").output


def test_queues_come_from_standard_input_too(path):
    words = ("report", "budgets", "--file", str(path), "--queues", "-", "-o", "csv")
    assert CliRunner().invoke(kai, words, input=QUEUES).output.count("\n") == 6
