from pathlib import Path

import yaml

from kai.api.codec.structuring import structure
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling.queue import Queue
from kai.roles.controllers.queue_service import first_queues

SHIPPED = Path(__file__).parents[4] / "deploy" / "queues" / "queues.yaml"


def test_an_empty_cluster_gets_the_two_shipped_queues():
    assert list(first_queues([])) == list(yaml.safe_load_all(SHIPPED.read_text()))


def test_the_parent_comes_first():
    parent, child = map(structure, first_queues([]))
    assert isinstance(parent, Queue)
    assert isinstance(child, Queue)
    assert child.spec.parent_queue == parent.metadata.name


def test_a_cluster_with_any_queue_is_left_alone():
    assert first_queues([Queue(metadata=ObjectMeta(name="research"))]) == ()


def test_what_was_cut_off_after_the_first_is_completed():
    parent, child = first_queues([])
    assert first_queues([structure(parent)]) == (child,)
    assert first_queues([structure(parent), structure(child)]) == ()


def test_a_parent_queue_of_somebody_else_is_left_alone():
    assert first_queues([Queue(metadata=ObjectMeta(name="default-parent-queue"))]) == ()
