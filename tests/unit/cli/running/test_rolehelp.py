"""The help of a role lists the flags that it takes, and no others."""

import re

import pytest

from kai.cli.command import run
from kai.cli.running.flags import FLAGS, ROLES
from kai.cli.running.rolehelp import MEANINGS, help_of, roles_in


def test_each_flag_has_a_meaning_and_no_other():
    assert MEANINGS.keys() == FLAGS.keys()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_shows_its_flags_and_no_others(role, capsys):
    assert run(["run", role, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: kai run {role}")
    listed = [line.split()[0].removeprefix("--") for line in said.splitlines() if line.startswith("  --")]
    assert sorted(listed) == sorted(name for name, flag in FLAGS.items() if role in flag.roles)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_a_role_may_be_asked_for_first(flag, capsys):
    assert run(["run", flag, "binder"]) == 0
    assert capsys.readouterr().out.startswith("Usage: kai run binder")


def test_help_of_two_roles_lists_shared_flags_once():
    text = help_of(("scheduler", "binder"))
    heads = [line for line in text.splitlines() if re.match("  --[a-z]", line)]
    names = [line.split()[0] for line in heads if line.count("--") == 1]
    assert {"--evict-by", "--plugins", "--leader-elect"} <= set(names)
    assert len(names) == len(set(names))


def test_a_value_of_a_flag_is_no_role():
    assert roles_in(["--namespace", "kai", "binder", "binder", "--help"]) == ("binder",)


def test_the_help_without_a_role_names_all_of_them(capsys):
    assert run(["run", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(role in said for role in ROLES)
