from kai.basics.progress import heard_by, report


def test_who_listens_hears_how_far_the_work_is_and_later_nothing():
    heard = []
    report("reading", 0, 2)
    with heard_by(lambda *told: heard.append(told)):
        report("reading", 1, 2)
        report("simulating", 1, 2, "T+1h of 2h")
    report("reading", 2, 2)
    assert heard == [("reading", 1, 2, None), ("simulating", 1, 2, "T+1h of 2h")]
