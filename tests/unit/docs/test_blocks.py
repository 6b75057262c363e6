"""Every block of code in pages: YAML is read strictly and by kai, commands name what exists."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from kai.api.codec import structuring
from kai.cli.command import COMMANDS, CONTEXT, kai
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.deciding.configuration.profile_reading import read_configuration
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import expand as expand_short_form
from kai.manifests import expand
from kai.manifests.adoption import Adoption, adopted
from tests.reference.resources import definitions

ROOT = Path(__file__).parents[3]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
)
BLOCK = re.compile(r"^```(?P<language>\w*)(?: +title=\"[^\"]+\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"", "console", "python", "text", "toml", "yaml"}
SETTINGS = {"with", "plugins", "actions", "tiers", "usageDBConfig", "parameters"}
OTHERS = {"Kustomization", "Cluster", "ClusterRole", "Role"}
"""Kinds that kai does not read: of kustomize, kind and RBAC."""


def blocks(*languages):
    """Return page, number of the line and text of every block in one of ``languages``."""
    out = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match["language"] in languages:
                place = f"{page.relative_to(ROOT).as_posix()}:{text[: match.start()].count(chr(10)) + 1}"
                out.append(pytest.param(match["text"], id=place))
    return out


class Strict(yaml.SafeLoader):
    """A loader that refuses a key that stands twice."""

    def construct_mapping(self, node, deep=False):  # noqa: FBT002 - the signature of PyYAML
        keys = [key.value for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"twice in one mapping: {twice}"
        return super().construct_mapping(node, deep)


def test_blocks_have_a_language_that_is_checked():
    found = {match["language"] for page in PAGES for match in BLOCK.finditer(page.read_text(encoding="utf-8"))}
    assert found <= LANGUAGES


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_is_read_strictly_and_by_kai_without_notes(text):
    documents = [each for each in yaml.load_all(text, Strict) if each is not None]
    objects = [each for each in documents if isinstance(each, dict) and "apiVersion" in each]
    for each in documents:
        if each in objects or not isinstance(each, dict):
            continue
        if SETTINGS & each.keys():
            if not {"same-rack", "rack-power"} & set(each.get("with") or ()):
                assert read_configuration(each, "page").notes == ()
        else:
            read_objects(expand_short_form({"queues": {}, "groups": {}, **each}, "page"), "page")
    ours = [each for each in objects if each["kind"] not in OTHERS]
    if any(is_elsewhere(each) for each in objects):  # what another scheduler places now, as the page has it taken over
        taken = adopted(objects, Adoption(schedulers=frozenset({"default-scheduler", "volcano"}), queue_from="kueue"))
        ours = [each for each in taken.manifests if not is_elsewhere(each)]
    found = expand(ours)
    assert not found.problems
    assert not [note for note in found.unused if "configures" not in str(note)]
    for each in ours:
        definition = definitions().get(each["kind"])
        if definition is not None:
            assert not list(unknown(each, schema_of(definition), each["kind"]))
        elif structuring.kind_of(each) is not None:
            structuring.structure(each)


def is_elsewhere(each):
    return each["kind"] == "ResourceQuota" or each["apiVersion"].startswith(
        ("kueue.x-k8s.io/", "scheduling.volcano.sh/")
    )


def schema_of(definition):
    (version,) = [each for each in definition["spec"]["versions"] if each["storage"]]
    return version["schema"]["openAPIV3Schema"]


def unknown(value, schema, path):
    """Yield the fields of ``value`` that ``schema`` does not have."""
    if isinstance(value, dict) and "properties" in schema:
        for key, each in value.items():
            if key not in schema["properties"] and "additionalProperties" not in schema:
                yield f"{path}.{key}"
            elif key != "metadata":
                yield from unknown(each, schema["properties"].get(key, {}), f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from unknown(each, schema.get("items", {}), f"{path}[]")


def command_lines(text):
    """Yield the words of each command of a shell block, without what the shell would do with them."""
    joined = re.sub(r"'\{.*?\}'|'\[\{.*?\}\]'", "JSON", text.replace("\\\n", " "), flags=re.DOTALL)
    for line in joined.splitlines():
        for part in re.split(r" \| |; |&&", line.split("  #")[0].split(" # ")[0].removeprefix("$ ")):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            yield [word for word in words if word not in {"&", "do", "done"}]


SHELL = [
    pytest.param(words, id=f"{block.id}: {' '.join(words)}"[:100])
    for block in blocks("", "console")
    for words in command_lines(block.values[0])
    if words
]


@pytest.mark.parametrize("words", [each for each in SHELL if each.values[0][0] == "kai"])
def test_a_command_of_kai_exists_with_its_flags(words):
    name, *arguments = words[1:] or ["--help"]
    if name.startswith("-"):
        assert name in {"--help", "-h"}
        return
    assert name in COMMANDS
    if name == "run":
        read_flags([each for each in arguments if each not in {"--help", "-h"}], FLAGS, ROLES, TOGETHER)
        return
    root = click.Context(kai, info_name="kai", **CONTEXT)
    command = kai.get_command(root, name)
    if isinstance(command, click.Group) and arguments and arguments[0] in command.list_commands(root):
        command = command.get_command(root, arguments.pop(0))
    known = {
        option for parameter in command.get_params(root) for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {each.split("=")[0] for each in arguments if re.match(r"--?[a-z]", each)} <= known


PATH = re.compile(r"(deploy|examples|docs|tests)/")


@pytest.mark.parametrize("words", [each for each in SHELL if any(map(PATH.match, each.values[0]))])
def test_a_path_of_the_repository_exists(words):
    for word in words:
        if PATH.match(word) and "port-forward" not in words:  # there it is a Deployment
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("words", [each for each in SHELL if each.values[0][0] in {"make", "python"}])
def test_a_target_or_a_module_exists(words):
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[1] == "-m" and words[2].split(".")[0] in {"kai", "tests", "benchmarks"}:
        path = ROOT / words[2].replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
