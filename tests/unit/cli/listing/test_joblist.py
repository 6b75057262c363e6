"""Rows of jobs: what one job says for itself is what a row of equal jobs says."""

import pytest

from kai.cli.listing.joblist import Row
from kai.cli.sources import Source


@pytest.fixture(scope="module")
def lines():
    return Source(place="examples/lab").decide().lines


def test_one_job_has_the_row_of_two_equal_jobs(lines):
    assert len({line.job.state for line in lines}) > 1
    for line in lines:
        one, two = (Row(name="x", namespace="y", lines=(line,) * count) for count in (1, 2))
        assert (one.state, one.since, one.reason) == (two.state, two.since, two.reason)
