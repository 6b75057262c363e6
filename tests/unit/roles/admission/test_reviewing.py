"""Reviews side by side, each within its time."""

import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import attrs
import pytest
import yaml

from kai.cluster.process.connections import Request
from kai.roles.admission import serving
from kai.roles.admission.review import ALLOWED, refused
from kai.roles.admission.serving import LONGEST, Reviewer
from tests.unit.roles.admission.test_serving import review

CONFIGURATIONS = Path(__file__).parents[4] / "deploy/components/webhooks/configurations.yaml"
PATH = "/validate"
QUICK = 30.0
"""Seconds within which a machine under load answers whatever waits for nothing."""


@contextmanager
def hanging():
    """Return a door that does not answer about pods called "slow" before the end."""
    end = threading.Event()

    def decide(request):
        if request.uid == "slow":
            end.wait()
        return ALLOWED

    try:
        yield decide
    finally:
        end.set()


def asked(uid, timeout=""):
    query = {"timeout": timeout} if timeout else {}
    return Request(method="POST", path=PATH, peer="a", body=review(uid=uid), query=query)


def uid_of(response):
    return json.loads(response.body)["response"]["uid"]


def test_a_review_that_hangs_holds_up_no_other():
    async def play(decide):
        reviewer = Reviewer({PATH: decide}, longest=10 * QUICK)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(reviewer.respond, asked("slow"))
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(QUICK):
                found = [uid_of(await reviewer.respond(asked(f"quick-{number}"))) for number in range(20)]
            tasks.cancel_scope.cancel()
        return found

    with hanging() as decide:
        assert anyio.run(play, decide) == [f"quick-{number}" for number in range(20)]


@pytest.mark.parametrize(("longest", "timeout"), [(0.05, ""), (0.05, "30s"), (60.0, "0s")])
def test_a_review_that_is_not_answered_in_time_fails(longest, timeout):
    async def play(decide):
        with anyio.fail_after(QUICK):
            return await Reviewer({PATH: decide}, longest=longest).respond(asked("slow", timeout))

    with hanging() as decide:
        response = anyio.run(play, decide)
    assert (response.status, response.body) == (503, b"not decided in time\n")


def test_hanging_reviews_take_no_more_than_the_allowed_threads(monkeypatch):
    monkeypatch.setattr(serving, "_MOST_THREADS", 2)

    async def play(decide):
        reviewer = Reviewer({PATH: decide}, longest=0.2)
        for _ in range(2):
            await reviewer.respond(asked("slow"))
        assert len(reviewer._deciding) == 2
        return await reviewer.respond(asked("quick"))

    with hanging() as decide:
        response = anyio.run(play, decide)
    assert (response.status, response.body) == (503, b"too many reviews are being decided\n")


def test_a_review_waits_as_long_as_the_previous_took(monkeypatch):
    used = threading.local()  # a thread whose review has failed in another test may end meanwhile

    def thread_time():
        used.seconds = getattr(used, "seconds", 0.0) + 60.0
        return used.seconds

    monkeypatch.setattr(serving, "time", SimpleNamespace(thread_time=thread_time, monotonic=time.monotonic))

    async def play():
        reviewer = Reviewer({PATH: lambda _: ALLOWED}, longest=60.0)
        first = await reviewer.respond(asked("first"))
        reviewer.longest = 0.05
        return first, await reviewer.respond(asked("second"))

    first, second = anyio.run(play)
    assert (uid_of(first), second.status) == ("first", 503)


def test_a_review_ends_before_the_webhooks_timeout():
    webhooks = [
        webhook
        for each in yaml.safe_load_all(CONFIGURATIONS.read_text())
        for webhook in (each or {}).get("webhooks", ())
    ]
    assert webhooks
    assert all(webhook["timeoutSeconds"] > LONGEST for webhook in webhooks)


def test_review_results_are_observed_for_existing_doors_only():
    """Any client may ask for any path, and a series for each would fill memory."""

    def decide(request):
        if request.uid == "bug":
            raise RuntimeError("a bug")
        return refused("no") if request.uid == "bad" else ALLOWED

    async def play():
        told = []
        reviewer = Reviewer({PATH: decide}, observe=told.append)
        for uid in ("good", "bad"):
            await reviewer.respond(asked(uid))
        with pytest.raises(RuntimeError):
            await reviewer.respond(asked("bug"))
        nonsense = attrs.evolve(asked("good"), body=b"nonsense")
        await reviewer.respond(nonsense)
        await reviewer.respond(attrs.evolve(nonsense, path="/other"))
        return told

    told = anyio.run(play)
    assert [(each.door, each.result) for each in told] == [
        (PATH, "allowed"),
        (PATH, "refused"),
        (PATH, "failed"),
        (PATH, "failed"),
    ]
