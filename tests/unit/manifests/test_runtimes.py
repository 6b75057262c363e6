"""What lint says about run times of queues and jobs."""

import pytest

from kai.manifests import documents_of, open_text
from kai.manifests.keys import check_keys
from kai.manifests.queues import check_queues


def queue(name, parent="", **times):
    fields = "".join(f"  {field}: {text}\n" for field, text in times.items())
    return f"""---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec:
  parentQueue: "{parent}"
{fields}"""


def told(text, check):
    documents = documents_of(*open_text(text.encode(), "q.yaml"))
    return [(each.code, each.message) for each in check(documents)]


def test_a_minimum_above_the_maximum_is_an_error():
    found = told(queue("a", maxRuntime="1h", preemptMinRuntime="2h"), check_queues)
    assert found == [("Q021", "queue a: preemptMinRuntime is 2h, and maxRuntime of queue a is 1h")]


def test_a_maximum_above_the_parents_has_no_effect():
    text = queue("top", maxRuntime="1h") + queue("a", "top", maxRuntime="2h", defaultRuntime="90m")
    assert told(text, check_queues) == [
        ("Q022", "queue a: defaultRuntime is 90m, and maxRuntime of queue top is 1h"),
        ("Q022", "queue a: maxRuntime is 2h, and maxRuntime of queue top is 1h"),
    ]


def test_run_times_within_the_maximum_are_right():
    text = queue("top", maxRuntime="2h") + queue("a", "top", maxRuntime="1h", reclaimMinRuntime="1h")
    assert told(text, check_queues) == []


@pytest.mark.parametrize(
    ("key", "value", "is_right"),
    [
        ("max-runtime", "12h", True),
        ("max-runtime", "0s", False),
        ("max-runtime", "12", False),
        ("requeue-delay", "0s", True),
        ("runtime-policy", "requeue", True),
        ("runtime-policy", "kill", False),
    ],
)
def test_a_value_that_does_not_count_is_an_error(key, value, is_right):
    text = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: j, annotations: {{kai.scheduler/{key}: "{value}"}}}}
spec: {{template: {{spec: {{containers: []}}}}}}
"""
    (document,) = documents_of(*open_text(text.encode(), "j.yaml"))
    assert [each.code for each in check_keys(document)] == ([] if is_right else ["F007"])
