from kai.api.kubernetes.meta import ObjectMeta, PriorityClass
from kai.lab.virtual.scenes.job_plans import installed_classes


def test_classes_that_are_given_keep_their_values():
    given = PriorityClass(metadata=ObjectMeta(name="train"), value=7)
    names = [each.metadata.name for each in installed_classes([given])]
    assert names == ["build-preemptible", "build", "inference"]
    assert len(installed_classes([])) == len(names) + 1
