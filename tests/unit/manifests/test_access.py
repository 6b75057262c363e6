import pytest

from tests.unit.manifests.test_lint import lint_texts

QUEUE = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: a, annotations: {%s}}\n"
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {kai.scheduler/queue: a}
  %s
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: i}]
"""
SPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml, labels: {team: %s}}\n"
NAMES, LABELS = "kai.scheduler/allowed-namespaces: %s", "kai.scheduler/allowed-namespace-labels: team=b"
IN_ML = "namespace: ml"


@pytest.mark.parametrize(
    ("texts", "is_refused"),
    [
        ((QUEUE % "", POD % IN_ML), False),
        ((QUEUE % (NAMES % "ml"), POD % IN_ML), False),
        ((QUEUE % (NAMES % "other"), POD % IN_ML), True),
        ((QUEUE % (NAMES % "other"), POD % "annotations: {}"), False),
        ((QUEUE % LABELS, POD % IN_ML), False),
        ((QUEUE % LABELS, POD % IN_ML, SPACE % "b"), False),
        ((QUEUE % LABELS, POD % IN_ML, SPACE % "c"), True),
    ],
)
def test_a_job_in_a_forbidding_queue_warns(texts, is_refused):
    found = [each for each in lint_texts(*texts) if each.code == "J022"]
    assert [each.message for each in found] == ["queue a does not allow namespace ml"] * is_refused
    assert all(each.line and each.help and not each.is_error for each in found)
