import pytest

from kai.roles.admission.queues import UNLIMITED, read_queue
from kai.roles.admission.review import AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import validate

CHECKED = AdmissionSettings(queue_quota_validation=True)


def queue(name="q", parent="", children=(), *, resources=True, **quotas):
    spec = {"parentQueue": parent}
    if resources:
        spec["resources"] = {kind: {"quota": quotas.get(kind, 0)} for kind in ("cpu", "gpu", "memory")}
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec, "status": {"childQueues": list(children)}}


def ask(manifest, operation="CREATE", others=(), settings=CHECKED):
    known = {shape.name: shape for shape in map(read_queue, others)}
    request = AdmissionRequest(operation=operation, kind="Queue", object=manifest, old_object=manifest)
    return validate(request, settings, known.get)


def test_a_queue_without_resources_is_refused_with_a_warning():
    response = ask(queue(resources=False), settings=AdmissionSettings())
    assert (response.allowed, response.message) == (False, "resources must be specified")
    assert response.warnings == ("resources must be specified",)


def test_empty_resources_are_resources():
    manifest = queue()
    manifest["spec"]["resources"] = {}
    assert ask(manifest, settings=AdmissionSettings()).allowed


def test_quotas_are_not_looked_at_unless_asked_for():
    assert ask(queue(parent="missing", gpu=9), settings=AdmissionSettings()).warnings == ()


def test_a_missing_parent_refuses_the_queue():
    assert ask(queue(parent="nobody")).message == "failed to get parent queue nobody: not found"


def test_a_parent_without_resources_refuses_the_queue():
    response = ask(queue(parent="p"), others=[queue("p", resources=False)])
    assert response.message == "parent queue p has no resources defined"


def test_a_queue_outgrowing_its_parent_warns_for_each_resource():
    response = ask(queue(parent="p", cpu=20, gpu=2, memory=3), others=[queue("p", cpu=10, gpu=1, memory=2)])
    assert response.allowed
    assert [warning.split(" quota")[0] for warning in response.warnings] == [
        "child queue CPU",
        "total children CPU",
        "child queue GPU",
        "child queue Memory",
    ]


def test_siblings_count_but_not_the_queue_itself_twice():
    parent = queue("p", children=("q", "sibling", "ghost"), cpu=10)
    others = [parent, queue("sibling", parent="p", cpu=5), queue("q", parent="p", cpu=999)]
    assert ask(queue(parent="p", cpu=5), others=others).warnings == ()
    assert len(ask(queue(parent="p", cpu=6), others=others).warnings) == 1


def test_children_that_outgrow_a_changed_queue_are_warned_about():
    others = [queue("a", cpu=3, gpu=1), queue("b", cpu=3, gpu=1), queue("c", resources=False)]
    response = ask(queue(children=("a", "b", "c"), cpu=2, gpu=1), "UPDATE", others)
    assert len(response.warnings) == 4
    assert "total children GPU quota (2.00) exceeds parent GPU quota (1.00)" in response.warnings


def test_nothing_outgrows_an_unlimited_parent():
    assert ask(queue(parent="p", gpu=100), others=[queue("p", gpu=-1, cpu=-1, memory=-1)]).warnings == ()


def test_an_unlimited_queue_outgrows_a_limited_parent():
    response = ask(queue(parent="p", gpu=-1), others=[queue("p", gpu=4)])
    assert response.warnings == ("child queue GPU quota (unlimited) exceeds parent queue p GPU quota (4.00)",)
    assert read_queue(queue(gpu=-1)).quotas.gpu == UNLIMITED


def test_a_queue_with_children_cannot_be_deleted():
    response = ask(queue(children=("a", "b")), "DELETE")
    assert response.message == "cannot delete queue q: it has child queues [a b]"
    assert ask(queue(), "DELETE").allowed


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([], "queue q: spec.resources: found a list of 0, expected an object"),
        ({"gpu": 4}, "spec.resources.gpu: found 4, expected an object"),
        ({"gpu": {"quota": "4"}}, 'spec.resources.gpu.quota: found "4", expected a number'),
        ({"cpu": {"limit": True}}, "spec.resources.cpu.limit: found true, expected a number"),
        ({"cpu": {"quota": float("nan")}}, "expected a finite number"),
        ({"cpu": {"quota": 10**400}}, "expected a smaller number"),
    ],
)
def test_malformed_resources_are_refused_with_the_values_path(resources, message):
    manifest = queue()
    manifest["spec"]["resources"] = resources
    response = ask(manifest)
    assert response.malformed
    assert message in response.message


@pytest.mark.parametrize("field", ["preemptMinRuntime", "reclaimMinRuntime"])
def test_a_minimum_run_time_above_the_maximum_is_refused(field):
    manifest = queue()
    manifest["spec"] |= {"maxRuntime": "1h", field: "2h"}
    response = ask(manifest, settings=AdmissionSettings())
    assert (response.allowed, response.message) == (False, f"queue q: spec.{field}: found 2h, expected at most 1h")
    manifest["spec"][field] = "1h"
    assert ask(manifest, settings=AdmissionSettings()).allowed


def test_a_long_model_name_is_refused_with_an_example():
    manifest = queue("q")
    manifest["spec"]["resources"]["models"] = {"NVIDIA-H100-PCIe": {"limit": 4}}
    response = ask(manifest, settings=AdmissionSettings())
    assert (response.allowed, response.message) == (
        False,
        "queue q: spec.resources.models: found NVIDIA-H100-PCIe, expected short names of models of GPUs, such as h100",
    )
    manifest["spec"]["resources"]["models"] = {"h100": {"limit": 4}}
    assert ask(manifest, settings=AdmissionSettings()).allowed


def test_quotas_of_models_that_cannot_be_met_cause_warnings():
    manifest = queue("q")
    manifest["spec"]["resources"]["gpu"]["quota"] = 4
    manifest["spec"]["resources"]["models"] = {"h100": {"quota": 3, "limit": 2}, "l4": {"quota": 2}}
    response = ask(manifest, settings=AdmissionSettings())
    assert response.allowed
    assert response.warnings == (
        "queue q: spec.resources.models.h100.limit: found 2.00, expected at least the quota of 3.00",
        "queue q: spec.resources.models: found quotas of 5.00 in all, expected at most 4.00, the quota of gpu",
    )


def at_night(name, parent="", children=(), gpu=8, **entry):
    found = queue(name, parent, children, gpu=gpu)
    found["spec"]["schedules"] = [{"name": "nights", "start": "0 22 * * *", "duration": "8h", **entry}]
    return found


def test_an_unreadable_schedule_is_refused_with_the_expected_form():
    response = ask(at_night("q", timeZone="Berlin", duration="0s"), settings=AdmissionSettings())
    assert not response.allowed
    assert "spec.schedules[0].timeZone: found 'Berlin', expected an IANA time zone" in response.message
    assert "spec.schedules[0].duration: found 0 s" in response.message


def test_children_exceeding_their_parent_in_a_window_alone_warn():
    parent, night = queue("p", children=("q",), gpu=8), {"resources": {"gpu": {"quota": 12}}}
    (warning,) = ask(at_night("q", "p", **night), others=[parent]).warnings
    assert warning == ("while q/nights is open, total children GPU quota (12.00) exceeds parent queue p quota (8.00)")
    assert ask(at_night("q", "p", **night), others=[at_night("p", children=("q",), **night)]).warnings == ()


def test_a_parent_that_shrinks_at_night_warns_about_children():
    shrinking = at_night("p", children=("q",), resources={"gpu": {"quota": 4}})
    (warning,) = ask(shrinking, "UPDATE", others=[queue("q", "p", gpu=8)]).warnings
    assert warning.startswith("while p/nights is open, total children GPU quota (8.00) exceeds")
