import click
import pytest

from kai.cli import command
from kai.cli.sources import Source, source_options
from tests.doubles.list_server import listing

DIVISION = """
name: fair
kind: fairshare
divide: resource
totalResources: {gpu: 4}
queues: []
"""


@click.command()
@source_options()
def show(source, console):
    """Show what a source is read into."""
    case = source.read()
    console.write(f"{case.title} {case.origin.type} {len(case.objects.nodes)} {source.namespace_of(case) or 'all'}")


@pytest.fixture
def shown(monkeypatch, capsys):
    monkeypatch.setattr(command.kai, "get_command", lambda _, __: show)
    monkeypatch.setitem(command.COMMANDS, "show", ("", ""))

    def run(*arguments, code=0):
        assert command.run(["show", *arguments]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def nothing(tmp_path):
    with listing([]) as gone:
        return gone.kubeconfig(tmp_path)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("kai.cluster.requesting.listing._PATIENCE", (0.0, 0.0))


def test_a_folder_is_read_with_all_its_namespaces(shown):
    assert shown("-f", "examples/lab").out == "lab manifests 13 all\n"
    assert shown("-f", "examples/lab", "-n", "ml").out == "lab manifests 13 ml\n"


def test_a_cluster_is_read_in_its_contexts_namespace(shown, tmp_path):
    with listing([]) as server:
        path = server.kubeconfig(tmp_path, namespace="ml")
        assert shown("--kubeconfig", path).out == "prod live 0 ml\n"
        assert shown("--kubeconfig", path, "-A").out == "prod live 0 all\n"
        assert shown("--kubeconfig", path, "--context", "staging").out == "staging live 0 ml\n"


def test_an_unreachable_cluster_exits_3_and_suggests_commands(shown, nothing):
    first, second, third = shown("--kubeconfig", nothing, code=3).err.splitlines()
    assert first.startswith('error: cannot reach the cluster of context "prod": 127.0.0.1:')
    assert first.endswith(" refused the connection")
    assert second == "  tried 3 times in 0s with the kubeconfig's current context"
    assert third == "  help: kai show --context staging   or offline:  kai show --from snapshot.zip"


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["why", "train"], "kai why train"),
        (["snapshot", "a b.zip"], "kai snapshot 'a b.zip'"),
        (["would-run", "examples/rack", "examples/lab"], "kai would-run examples/rack examples/lab"),
    ],
)
def test_the_suggested_commands_repeat_the_typed_arguments(words, again, nothing, capsys):
    assert command.run([*words, "--kubeconfig", nothing]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"  help: {again} --context staging   or offline:  {again} --from snapshot.zip"


def test_the_context_that_was_asked_for_is_named(shown, nothing):
    lines = shown("--kubeconfig", nothing, "--context", "staging", code=3).err.splitlines()
    assert lines[1] == "  tried 3 times in 0s with the context staging"
    assert lines[2] == "  help: kai show --context prod   or offline:  kai show --from snapshot.zip"


def test_a_missing_right_leaves_with_3_and_is_named(shown, tmp_path):
    with listing([]) as server:
        message = 'User "jane" cannot list resource "nodes" in API group "" at the cluster scope'
        server.refusals["nodes"] = (403, message)
        lines = shown("--kubeconfig", server.kubeconfig(tmp_path), code=3).err.splitlines()
    assert lines[0] == ('error: not allowed to list nodes in all namespaces as "jane" in the cluster of context "prod"')
    assert lines[1] == "  a role with get and list for what the scheduler reads is enough; nothing is written"


@pytest.mark.parametrize("words", [["show"], ["doctor"]])
def test_unknown_credentials_are_an_error_without_output(shown, tmp_path, capsys, words):
    with listing([]) as server:
        server.refusals |= dict.fromkeys(("nodes", "schedulingshards", "/version", "version"), (401, "Unauthorized"))
        assert command.run([*words, "--kubeconfig", server.kubeconfig(tmp_path)]) == 3
    said = capsys.readouterr()
    assert "does not know these credentials (401)" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-f", "missing.yaml"], 4, "error: missing.yaml: no such file or folder\n"),
        (["-f", "examples/lab", "-l", "a b"], 2, "error: command line: --selector: found 'a b', expected a label"),
        (["-f", ""], 2, "error: -f: found an empty path, expected a file or a folder"),
        (["-f", "-", "-w"], 2, "error: -w cannot be used with -f -: standard input is read once"),
        (["-f", "examples/lab", "-A", "-n", "x"], 2, "error: -n and -A cannot be used together"),
        (["-f", "examples/lab", "--context", "x"], 2, "error: --context and -f cannot be used together: examples/lab"),
        (["-f", "examples/lab", "--kubeconfig", "x"], 2, "error: --kubeconfig and -f cannot be used together"),
        (["-f", "examples/lab", "--as", "joe"], 2, "error: --as and -f cannot be used together"),
        (["--kubeconfig", "missing"], 4, "error: missing: found no such file or folder, expected a readable file"),
        (["--kubeconfig", "."], 4, "error: .: found nothing to use (it is a folder), expected a kubeconfig file"),
    ],
)
def test_wrong_flags_are_told_on_one_line(shown, arguments, code, words):
    assert shown(*arguments, code=code).err.startswith(words)


def test_a_division_of_fair_shares_is_no_cluster(shown, tmp_path):
    path = tmp_path / "fair.yaml"
    path.write_text(DIVISION)
    assert "found a division of fair shares, expected a cluster" in shown("-f", str(path), code=4).err


def test_what_is_shown_depends_on_namespace_and_labels():
    source = Source(place="examples/lab", namespace="ml")
    case = source.read()
    assert source.shows(case, "ml", {})
    assert not source.shows(case, "web", {})
