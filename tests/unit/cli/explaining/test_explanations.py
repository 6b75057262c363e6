import json

import pytest

from kai.cli.command import run

TEXT = """
about: One waits for a limit, one takes another's place.
cluster: {nodes: {n1: {gpu: 4}, n2: {gpu: 4}}}
queues:
  root: {quota: 8}
  a: {parent: root, quota: 4}
  b: {parent: root, limit: 5}
  c: {parent: root, quota: 2}
groups:
  runs: {queue: b, members: 2, minimum: 0, each: {gpu: 2}, runs_on: n2}
  takes: {queue: a, each: {gpu: 4}}
  fixed: {queue: c, preemptible: false, each: {gpu: 3}}
  waits: {queue: b, members: 3, each: {gpu: 1}}
run: [allocate, reclaim]
"""
TAKEN = """
about: One takes the place of another.
cluster: {nodes: {n1: {gpu: 4}}}
queues: {root: {quota: 4}, a: {parent: root, quota: 4}, b: {parent: root}}
groups:
  runs: {queue: b, members: 2, minimum: 0, each: {gpu: 2}, runs_on: n1}
  takes: {queue: a, each: {gpu: 4}}
run: [allocate, reclaim]
"""


@pytest.fixture
def shown(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")

    def show(text, *arguments):
        path = tmp_path / "scenario.yaml"
        path.write_text(text)
        assert run(["simulate", str(path), *arguments]) == 0
        return capsys.readouterr().out

    return show


def block(text, start):
    """Return the lines of a text from the one that begins with ``start``."""
    return text[text.index(f"\n{start}") + 1 :].splitlines()


def test_the_answer_precedes_the_evidence_and_then_the_suggestions(shown):
    lines = block(shown(TEXT, "--explain"), "waits waits:")
    assert lines[:4] == [
        "waits waits: queue b may not use more than 5 GPUs, and this job would make it 7 GPUs.",
        "OverLimit · queue b · 3 pods, 3 GPUs · waiting 57m · position 1",
        "",
        "  b        limit 5   used 4   this job 3   over by 2",
    ]
    at = lines.index("To make it run")
    minimum, limit, wait = lines[at + 1 : at + 4]
    assert minimum.startswith("  minimum 3 -> 1     ~ then waits: no room; with one more pod queue b would use 5 GPUs")
    assert limit.startswith("  limit of b 5 -> 7  ~ then waits: its 3 pods must start together")
    assert wait == "  wait               until b uses 2 GPUs less (no end time is known)"


def test_what_a_change_costs_others_is_told_beside_it(shown):
    lines = block(shown(TEXT, "--explain"), "fixed waits:")
    assert "  2 GPUs a pod, not 3  ✓ starts now on n1; 1 pod of runs is evicted" in lines
    assert any(line.endswith("~ starts on n2 when others have left; 2 pods of runs are evicted") for line in lines)


def test_a_job_that_no_change_helps_is_told_so(shown):
    full = TAKEN.replace("members: 2, minimum: 0", "members: 2, preemptible: false").replace(
        "gpu: 4}, runs", "gpu: 2}, runs"
    )
    lines = block(shown(full, "--explain"), "takes waits:")
    at = lines.index("To make it run")
    assert lines[at + 1 : at + 3] == [
        "  No single change that was tried would start it.",
        "  wait  until running work ends (no end time is known)",
    ]


def test_wire_texts_appear_once_and_only_with_verbose(shown):
    assert "wire" not in shown(TEXT, "--explain")
    text = shown(TEXT, "--explain", "-v")
    (line,) = [line for line in text.splitlines() if "Non-preemptible workload is over quota" in line]
    assert line.startswith("  wire")
    assert line.endswith("Use a preemptible workload to go over quota.")
    assert ".." not in text


def test_evictions_of_one_job_and_reason_share_a_line(shown):
    text = shown(TAKEN, "--explain")
    lines = text[text.index("Evicted\n") :].splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["JOB", "QUEUE", "PODS", "GPUS", "CAUSE", "FOR", "RULE"],
        ["runs", "b", "2", "4", "reclaim", "takes", "fair", "share"],
    ]
    assert lines[3] == (
        "  reclaim for takes: b used 4 GPUs, fair share 0; a used 0 GPUs, fair share 4; "
        "1 smaller set was tried; it is not enough"
    )
    assert "Nothing to do: it starts when they have left." in text


def test_documents_say_everything_when_it_is_wanted(shown):
    result = json.loads(shown(TEXT, "--explain", "-o", "json"))
    each = {each["subject"]["name"]: each for each in result["explanations"]}["waits"]
    assert each["subject"] == {"kind": "PodGroup", "namespace": "default", "name": "waits", "uid": "waits"}
    assert each["state"] == "Waits"
    assert each["reason"] == {
        "code": "OverLimit",
        "detail": "queue b may not use more than 5 GPUs, and this job would make it 7 GPUs",
        "queue": "b",
        "resource": "gpu",
        "limit": 5.0,
        "fairShare": None,
        "used": 4.0,
        "requested": 3.0,
        "excess": 2.0,
        "wireReason": "OverLimit",
    }
    assert each["evidence"][0]["values"]["limit"] == 5.0
    first = each["suggestions"][0]
    assert (first["field"], first["from"], first["to"], first["verified"]) == ("minMember", "3", "1", True)
    assert {"outcome", "nextReason", "placement", "losses", "podsStillWaiting"} <= set(first)


def test_documents_name_cause_beneficiary_and_rule_of_every_eviction(shown):
    result = json.loads(shown(TAKEN, "--explain", "-o", "json"))
    assert [pod["pod"] for pod in result["evicted"]] == [pod["pod"] for pod in result["evictions"]]
    assert result["evicted"][0] == {
        "pod": result["evictions"][0]["pod"],
        "job": "default/runs",
        "queue": "b",
        "node": "n1",
        "gpus": 2.0,
        "cause": "reclaim",
        "beneficiary": "default/takes",
        "rule": "fair share",
        "movedTo": None,
        "because": [
            "b used 4 GPUs, fair share 0",
            "a used 0 GPUs, fair share 4",
            "1 smaller set was tried; it is not enough",
        ],
    }


def test_documents_are_as_before_when_it_is_not(shown):
    plain, more = (json.loads(shown(TEXT, *flags, "-o", "json")) for flags in ((), ("--explain",)))
    assert "explanations" not in plain
    assert "evicted" not in plain
    assert {key: value for key, value in more.items() if key in plain} == plain


def test_every_sign_has_a_form_in_ascii(shown):
    assert shown(TEXT, "--explain", "--ascii").isascii()


@pytest.mark.parametrize("width", [60, 80])
def test_an_explanation_is_as_wide_as_the_terminal(shown, monkeypatch, width):
    whole = shown(TEXT, "--explain")
    assert max(map(len, block(whole, "fixed "))) > width
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = block(shown(TEXT, "--explain"), "fixed ")
    assert max(map(len, narrow)) <= width
