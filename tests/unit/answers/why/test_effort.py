from kai.answers.why.trials import TRYING, Effort


def told(act) -> list[tuple[str, int, int, str]]:
    heard: list[tuple[str, int, int, str]] = []
    act(Effort(lambda *said: heard.append(said)))
    return heard


def test_decisions_are_counted_against_those_that_are_allowed():
    def one_job(effort: Effort) -> None:
        effort.begin(1, 3)
        effort.count()
        effort.end_group()

    assert told(one_job) == [
        (TRYING, 0, 3, "0 tried, 3 at most"),
        (TRYING, 1, 3, "1 tried, 3 at most"),
        (TRYING, 3, 3, ""),
    ]


def test_progress_names_which_of_several_jobs_is_searched():
    def two_jobs(effort: Effort) -> None:
        effort.begin(2, 2)
        effort.count()
        effort.end_group()
        effort.end_group()

    assert [(done, detail) for _, done, _, detail in told(two_jobs)] == [
        (0, "job 1 of 2, 0 tried, 2 at most"),
        (1, "job 1 of 2, 1 tried, 2 at most"),
        (2, "job 2 of 2, 0 tried, 2 at most"),
        (4, ""),
    ]


def test_progress_does_not_finish_before_the_answer():
    def more_than_expected(effort: Effort) -> None:
        effort.begin(1, 2)
        for _ in range(3):
            effort.count()

    assert max(done for _, done, _, _ in told(more_than_expected)) == 1


def test_nothing_is_told_where_nothing_may_be_tried():
    def without_trials(effort: Effort) -> None:
        effort.begin(2, 0)
        effort.end_group()
        effort.end_group()

    assert told(without_trials) == []
