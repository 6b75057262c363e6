import json

import pytest

from kai.basics.errors import ConfigError, load_extra


def test_a_library_that_is_there_is_returned():
    assert load_extra("json", "traces", "--out: JSON is written by json") is json


def test_a_missing_library_is_named_with_its_extra():
    wanted = r"^--out: rows are kept by no_such_library; install it with pip install 'kai-scheduler\[traces\]'$"
    with pytest.raises(ConfigError, match=wanted):
        load_extra("no_such_library", "traces", "--out: rows are kept by no_such_library")
