"""``kai why`` of a running cluster: what is on record about a job stands beside the answer."""

import json

import pytest

from kai.cli.command import run
from tests.doubles.list_server import listing
from tests.doubles.own_cluster import own_manifests


def event(name, message, kind="PodGroup", time="2026-11-22T08:30:00Z", **more):
    return {
        "metadata": {"name": f"{name}.{time}", "namespace": "ml"},
        "involvedObject": {"kind": kind, "namespace": "ml", "name": name},
        "reason": "Unschedulable",
        "message": message,
        "lastTimestamp": time,
        **more,
    }


EVENTS = [
    event("bound", "an older word"),
    event("bound", "no\nroom", time="2026-11-22T08:40:00Z", count=3),
    event("bound-0", "not for me", kind="Pod", time="2026-11-22T08:50:00Z", reason="FailedMount", count=1),
    event("bound", "of another kind", kind="Job"),
    event("gang", "of another job"),
    {"involvedObject": {"kind": "PodGroup", "name": "bound"}, "metadata": {"namespace": "ml"}, "message": "no time"},
]


@pytest.fixture
def live(tmp_path, capsys):
    def ask(*arguments, events=EVENTS, refused=False, tenant=""):
        with listing(own_manifests()) as server:
            server.tenant = tenant
            server.lists["v1/events"] = list(events)
            server.refusals = {"events": (403, "not for you")} if refused else {}
            assert (
                run(["why", *arguments, "--no-verify", "--kubeconfig", server.kubeconfig(tmp_path, namespace="ml")])
                == 0
            )
        return capsys.readouterr().out

    return ask


def evidence(text, label):
    found = json.loads(text)
    return [each["text"] for each in found["evidence"] if each["label"] == label]


@pytest.mark.parametrize("tenant", ["", "jane"], ids=["all rights", "rights of one namespace"])
def test_the_latest_events_show_each_text_once(live, tenant):
    found = evidence(live("bound", "--detail", "-o", "json", tenant=tenant), "event")
    starts = [
        "FailedMount: not for me (pod bound-0, ",
        "Unschedulable: no room (3 times, ",
        "Unschedulable: an older word (",
    ]
    assert [text.startswith(start) for text, start in zip(found, starts, strict=True)] == [True] * 3
    assert all(text.endswith(" ago)") for text in found)
    assert "\n  event" in live("bound", "--detail", tenant=tenant)


def test_one_namespaces_users_see_events_others_with_detail_only(live):
    """What a service says is to be the same as what the command finds out itself, and a service knows of no events."""
    assert "\n  event" in live("bound", tenant="jane")
    assert "\n  event" not in live("bound")


def test_the_condition_of_the_group_shows_its_time(live):
    (text,) = evidence(live("bound", "-o", "json"), "condition")
    assert text.startswith("OverLimit: team quota has reached the allowable limit of GPUs. ")
    assert text.endswith(" (written at 2026-11-22T09:00:00Z)")


@pytest.mark.parametrize("given", [{"events": ()}, {"refused": True}], ids=["none", "not allowed"])
def test_without_events_the_answer_is_what_it_was(live, given):
    text = live("bound", "--detail", **given)
    assert text.startswith("bound ")
    assert "event" not in text
