import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kai.answers.documents.document import DISTRIBUTION, installed
from kai.basics.errors import ActionError, CommandLineError, ConfigError, InputError, InvariantError, PluginError
from kai.cli import command, main
from kai.cli.command import COMMANDS, run


def test_help_lists_every_command_without_importing_it(capsys):
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name, capsys):
    assert run([name, "--help"]) == 0
    assert f"Usage: kai {name}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), ["plugins", "new"], ["run", "scheduler"]])
def test_a_help_fits_into_80_columns(words, monkeypatch, capsys):
    """A terminal breaks longer lines in the middle of words."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


_INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == "kai.cli.command":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
from kai.cli import main
main()
"""


def test_an_interrupt_during_import_ends_silently_by_sigint():
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


_TOLD_TO_END = """
import os, signal
ours, os.getpid = os.getpid(), lambda: {process}
from kai.cli import command, starting
command.main = lambda _: os.kill(ours, signal.SIGTERM)
starting.main()
"""


@pytest.mark.parametrize(("process", "code"), [(1, 128 + signal.SIGTERM), (2, -signal.SIGTERM)])
def test_process_1_ends_by_sigterm_with_code_143(process, code):
    """The kernel ends no process 1 by a signal that it does not catch; no other process needs that."""
    done = subprocess.run([sys.executable, "-c", _TOLD_TO_END.format(process=process)], check=False)
    assert done.returncode == code


def test_a_program_that_forks_gives_the_command_its_arguments(capsys):
    with pytest.raises(SystemExit) as left:
        main(["version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("kai ")


def test_the_module_runs_the_command():
    done = subprocess.run([sys.executable, "-m", "kai", "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: kai")


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["explain", "x"], "error: 'explain' is no command of kai", "help: did you mean kai why?"),
        (["simulat"], "error: 'simulat' is no command of kai", "help: did you mean kai simulate?"),
        (["xyz"], "error: 'xyz' is no command of kai", "help: kai --help lists the commands"),
        (["simulate"], "error: Missing argument 'PATH...'.", "help: kai simulate --help"),
        (["simulate", "x", "--cycles", "0"], "error: Invalid value for '--cycles'", "help: kai simulate --help"),
        (["simulate", "x", "--cycles", "1001"], "error: Invalid value for '--cycles'", "help: kai simulate --help"),
        (["replay", "x", "--cycles", "1001"], "error: Invalid value for '--cycles'", "help: kai replay --help"),
        (["diff", "x", "y", "--cycles", "1001"], "error: Invalid value for '--cycles'", "help: kai diff --help"),
        (["simulate", "x", "-o", "xml"], "error: Invalid value for '-o'", "help: kai simulate --help"),
        (["lint", "--explain", "ZZZ"], "error: 'ZZZ' is no code", "help: kai lint --explain lists the codes"),
        (
            ["lint", "x", "--select", "ZZZ"],
            "error: --select: no code begins",
            "help: kai lint --explain lists the codes",
        ),
        (["completion", "tcsh"], "error: Invalid value for", "help: kai completion --help"),
        (
            ["completion"],
            "error: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish",
            "help: kai completion --help",
        ),
        (["run", "--bogus"], "error: --bogus: found an unknown flag", "help: kai run --help"),
        (["run", "schedular"], "error: role: found 'schedular', expected scheduler", "help: kai run --help"),
        (["run", "binder", "--qps"], "error: --qps: found nothing, expected a value", "help: kai run --help"),
        (["run", "--qps", "many"], "error: --qps: found 'many', expected", "help: kai run --help"),
        (["run", "binder", "--evict-by=x"], "error: --evict-by: found a flag of scheduler", "help: kai run --help"),
        (["simulate", "x", "--now", "noon"], "error: command line: --now: found 'noon'", "help: kai simulate --help"),
        (["simulate", "x", "--until", "0s"], "error: command line: --until: found '0s'", "help: kai simulate --help"),
        (
            ["simulate", "examples/lab", "--until", "1h", "--sweep", "x"],
            "error: command line: --sweep: found 'x'",
            "help: kai simulate --help",
        ),
        (
            ["jobs", "-f", "examples/rack", "--state", "stuck"],
            "error: --state: found 'stuck', expected one of",
            "help: kai jobs --help",
        ),
        (
            ["jobs", "-f", "examples/rack", "-l", "a b"],
            "error: command line: --selector: found 'a b', expected",
            "help: kai jobs --help",
        ),
        (["version", "--schema"], "error: Option '--schema' requires an argument.", "help: kai version --help"),
    ],
)
def test_wrong_usage_is_told_in_two_lines(arguments, error, hint, capsys):
    assert run(arguments) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(error)
    assert second.strip() == hint


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("c"), 4),
        (InputError("i", "j"), 4),
        (CommandLineError("l"), 2),
        (InvariantError("v"), 5),
        (PluginError("p", plugin="x", hook="score_nodes"), 5),
        (KeyError("k"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_whatever_happens_ends_in_an_exit_code(error, code, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(command.kai, "main", fail)
    assert run([]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_prints_one_line_and_a_details_file(monkeypatch, capsys, tmp_path):
    def fail(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(command.kai, "main", fail)
    assert run(["simulate", "x"]) == 5
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: this is a bug of kai: KeyError: 'lost'"
    (details,) = tmp_path.glob("kai-*.txt")
    assert second.strip() == f"help: details are in {details}"
    text = details.read_text()
    assert text.startswith("kai simulate x\n")
    assert "Traceback" in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PluginError("raised KeyError: 'rack'", plugin="same-rack", hook="NodeScore.score", origin="mine 1.0"),
            "error: plugin \"same-rack\" (mine 1.0), NodeScore.score: raised KeyError: 'rack'",
        ),
        (
            ActionError("raised KeyError: 'rack'", action="tidy", origin="mine 1.0"),
            "error: action \"tidy\" (mine 1.0), run: raised KeyError: 'rack'",
        ),
    ],
)
def test_plugin_and_action_faults_print_without_kais_error_class(error, said, monkeypatch, capsys, tmp_path):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(command.kai, "main", fail)
    assert run(["simulate", "x"]) == 5
    first, second = capsys.readouterr().err.splitlines()
    assert first == said
    (details,) = tmp_path.glob("kai-*.txt")
    assert second.strip() == f"help: details are in {details}"


NOTES = (
    (
        "A lab of 100 GPUs over a day of eight hours. Services take what training leaves idle; training takes back what"
        " it is entitled to, all GPUs of a job at once.\n"
    ),
    "31 of 36 enabled; the number is the place in the order\n",
)
"""What commands say before they write."""

READ_IN_PART = [
    *([name, "--help"] for name in COMMANDS),
    ["--help"],
    ["--version"],
    ["help", "jobs"],
    ["version", "--schema", "JobList"],
    ["completion", "bash"],
    ["lint", "--explain", "T001"],
    ["lint", "examples/lab"],
    ["doctor", "--list"],
    ["plugins"],
    ["demo"],
    *([name, "-f", "examples/lab"] for name in ("jobs", "queues", "nodes")),
    *(["jobs", "-f", "examples/lab", "-o", form] for form in ("json", "yaml", "name")),
    ["jobs", "-f", "examples/lab", "-w"],
    ["why", "--all", "-f", "examples/lab"],
    ["simulate", "examples/lab"],
    ["diff", "examples/lab", "examples/lab"],
]


@contextlib.contextmanager
def broken_pipe():
    """Let standard output be a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream, contextlib.redirect_stdout(stream):
        yield


@pytest.mark.parametrize("arguments", READ_IN_PART, ids=" ".join)
def test_a_broken_pipe_ends_any_command_with_141(arguments, capsys):
    with broken_pipe():
        assert run(arguments) == 141
    assert capsys.readouterr().err in {"", *NOTES}


@pytest.mark.parametrize("name", ["jobs", "queues", "nodes", "why"])
def test_yaml_has_what_json_has(name, capsys):
    arguments = [name, *(["--all"] if name == "why" else []), "-f", "examples/lab", "-o"]
    assert run([*arguments, "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert run([*arguments, "yaml"]) == 0
    assert {**yaml.safe_load(capsys.readouterr().out), "generatedAt": ""} == {**as_json, "generatedAt": ""}


def test_a_broken_pipe_process_ends_without_any_error_text():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "kai", "jobs", "-f", "examples/lab"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_kubectl_that_waits_for_no_completion_is_told_none(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kubectl_complete-kai", "jo"])
    with broken_pipe(), pytest.raises(SystemExit) as left:
        command.complete()
    assert left.value.code == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell, capsys):
    assert run(["completion", shell]) == 0
    assert "_KAI_COMPLETE" in capsys.readouterr().out


def test_completion_knows_the_commands(monkeypatch, capsys):
    monkeypatch.setenv("_KAI_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kai si")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == ["plain,simulate"]


def test_kai_alone_prints_its_help_as_kubectl_does(capsys):
    assert run([]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: kai")
    assert captured.err == ""


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_one_line(flag, capsys):
    assert run([flag]) == 0
    assert capsys.readouterr().out == f"kai {installed(DISTRIBUTION)}\n"


@pytest.mark.parametrize(
    ("words", "first"),
    [([], "Usage: kai [OPTIONS]"), (["nodes"], "Usage: kai nodes"), (["plugins", "new"], "Usage: kai plugins new")],
)
def test_help_is_a_command_as_well(words, first, capsys):
    assert run(["help", *words]) == 0
    assert capsys.readouterr().out.startswith(first)


def test_help_for_what_is_no_command_names_the_nearest(capsys):
    assert run(["help", "node"]) == 2
    assert capsys.readouterr().err.splitlines()[1].strip() == "help: did you mean kai nodes?"


@pytest.mark.parametrize("arguments", [["jobs", "-f", "examples/lab"], ["version"], ["--help"], ["-V"]])
def test_an_output_without_room_is_no_bug_of_kai(arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kai", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4
    assert done.stderr == "error: standard output: found No space left on device, expected room to write\n"


@pytest.mark.parametrize("arguments", [["--help"], ["lint", "--help"], ["completion", "bash"], ["plugins"]])
def test_a_file_size_limit_is_reported_as_no_bug(arguments, tmp_path):
    command = f"ulimit -f 0; exec {shlex.join([sys.executable, '-m', 'kai', *arguments])} > {tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == "error: standard output: found File too large, expected room to write\n"
    assert done.returncode == 4


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "--help", "--version", "-h", "lint --help", "plugins new --help", "run --help", "help why"),
        *("completion bash", "plugins -o json"),
    ],
)
def test_a_closed_standard_output_is_reported_as_no_bug(arguments):
    command = f"exec {sys.executable} -m kai {arguments} >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == "error: standard output: found it closed, expected a place to write to\n"
    assert done.returncode == 4


@pytest.mark.parametrize(
    "arguments", [["lint", "-"], ["simulate", "-"], ["jobs", "-f", "-"], ["would-run", "-", "-f", "examples/lab"]]
)
def test_standard_input_that_is_closed_is_told(arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert run(arguments) == 4
    told = "error: standard input: found it closed, expected manifests or a scenario\n"
    assert capsys.readouterr().err == told


def test_without_standard_error_the_exit_code_is_kept(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert run(["jobs", "-f", "missing.yaml"]) == 4
    assert run(["jobs", "--bogus"]) == 2


@pytest.mark.parametrize("arguments", [["lint", "closed/x.yaml"], ["jobs", "-f", "closed/x.yaml"]])
def test_a_file_in_a_forbidden_folder_is_no_bug(arguments, monkeypatch, capsys):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert run(arguments) == 4
    told = "error: closed/x.yaml: found Permission denied, expected a file or a folder that can be read\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(("words", "is_spared"), [(["version"], True), (["run", "--help"], False), ([], True)])
def test_only_short_commands_spare_the_garbage_collector(words, is_spared, monkeypatch):
    spared = []

    @contextlib.contextmanager
    def noted():
        spared.append(words)
        yield

    monkeypatch.setattr(command, "spared", noted)
    with pytest.raises(SystemExit) as left:
        command.main(words)
    assert (left.value.code, spared) == (0, [words] if is_spared else [])
