from kai.basics.progress import heard_by, report


def test_a_listener_hears_progress_only_while_listening():
    heard = []
    report("reading", 0, 2)
    with heard_by(lambda *told: heard.append(told)):
        report("reading", 1, 2)
        report("simulating", 1, 2, "T+1h of 2h")
    report("reading", 2, 2)
    assert heard == [("reading", 1, 2, None), ("simulating", 1, 2, "T+1h of 2h")]
