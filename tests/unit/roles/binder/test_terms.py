from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder.queue import LeaderTerms


def order(epoch, created, lease="kai-scheduler"):
    annotations = {"kai.scheduler/epoch": str(epoch), "kai.scheduler/lease": lease} if epoch else {}
    metadata = ObjectMeta(name="p", namespace="ns", annotations=annotations, creation_timestamp=created)
    return BindRequest(metadata=metadata)


def terms(*orders):
    found = LeaderTerms()
    for each in orders:
        found.see(each)
    return found


def test_an_order_of_an_overtaken_term_is_refused():
    assert terms(order(6, 100.0)).refuse(order(5, 101.0)) == (
        "bindrequest ns/p was decided in epoch 5 of lease kai-scheduler and came after epoch 6 began"
    )


def test_what_the_next_leader_found_is_carried_out():
    assert terms(order(6, 100.0)).refuse(order(5, 99.0)) == ""
    assert terms(order(6, 100.0)).refuse(order(5, 100.0)) == "", "times are to the second: it may have been first"


def test_orders_of_the_newest_term_are_carried_out():
    assert terms(order(5, 90.0), order(6, 100.0)).refuse(order(6, 120.0)) == ""
    assert terms(order(5, 90.0)).refuse(order(6, 80.0)) == ""


def test_schedulers_with_separate_leases_do_not_affect_each_other():
    assert terms(order(6, 100.0)).refuse(order(5, 101.0, lease="kai-scheduler-blue")) == ""


def test_orders_that_name_no_term_are_carried_out():
    assert terms(order(6, 100.0), order(0, 100.0)).refuse(order(0, 101.0)) == ""
    assert terms(order(6, 100.0)).refuse(order(5, None)) == "", "one that is not written is of this very process"


def test_of_many_terms_the_newest_are_remembered():
    seen = terms(*(order(epoch, 100.0 + epoch) for epoch in range(1, 30)))
    assert seen.refuse(order(28, 140.0)).endswith("after epoch 29 began")


def test_of_many_terms_those_that_began_last_are_remembered():
    seen = terms(order(57, 10.0), *(order(epoch, 100.0 + epoch) for epoch in range(1, 9)))
    assert seen.refuse(order(8, 140.0)) == "", "the lease was made anew, and counts from the beginning"
