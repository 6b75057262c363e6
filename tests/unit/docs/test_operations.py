"""The tables of flags and metrics in ``docs`` against the code, in both directions."""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from kai.api.kubernetes.pod import Pod
from kai.cli import failures
from kai.cli.command import COMMANDS
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.rolehelp import MEANINGS
from kai.cli.running.rolemetrics import ApiCalls, MissingRights, ObjectsNotRead, RoleMetrics
from kai.cluster.process.exposition import GaugeTable
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from tests.unit.deploy.rendering import DEPLOY

DOCS = DEPLOY.parent / "docs"
FLAGS_PAGE = (DOCS / "reference" / "flags.md").read_text()
MONITORING = (DOCS / "monitoring.md").read_text()
OF_A_QUEUE = ("queue_name", "queue_metadata_name", "queue_display_name")
# Where nothing is said, processes listen on this machine only.
LISTENING = {
    "health-probe-bind-address": "127.0.0.1:8081",
    "listen-address": "127.0.0.1:8080",
    "metrics-bind-address": "127.0.0.1:8080",
    "metrics-listen-address": "127.0.0.1:8080",
}


def section(page, title):
    return re.split(r"\n##+ ", page.partition(f"\n## {title}\n")[2])[0]


def rows(text):
    """Return the cells of each row of the tables of a text, heads left out."""
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in found if row[0].startswith("`")]


def documented_flags():
    """Return, by flag, who takes it and its default as the page says."""
    out = {}
    for name, who, default, _ in rows(section(FLAGS_PAGE, "Of several roles")):
        left_out = who.removeprefix("all but ").split(", ") if who.startswith("all but ") else []
        roles = [role for role in ROLES if role not in left_out] if who.startswith("all") else who.split(", ")
        out[name.strip("`-")] = (frozenset(roles), default.strip("` "))
    for role in ROLES:
        for name, default, _ in rows(section(FLAGS_PAGE, role)):
            assert name.strip("`-") not in out, f"{name} stands there twice"
            out[name.strip("`-")] = (frozenset({role}), default.strip("` "))
    return out


def test_the_page_has_every_flag_and_no_other():
    assert documented_flags().keys() == FLAGS.keys()


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_the_page_lists_each_flags_roles_and_default(name):
    roles, default = documented_flags()[name]
    flag = FLAGS[name]
    assert roles == flag.roles
    if name in LISTENING:
        assert default == LISTENING[name]
    elif default:
        given = read_flags([f"--{name}={default}", *sorted(roles)], FLAGS, ROLES, TOGETHER)
        assert given.values[name] == flag.default
    else:
        assert flag.default in ("", {})


def test_the_page_marks_flags_without_effect_as_accepted():
    text = {row[0].strip("`-"): row[-1] for row in rows(FLAGS_PAGE)}
    quiet = {name for name, meaning in text.items() if meaning.startswith("accepted")}
    assert quiet == {name for name, flag in FLAGS.items() if flag.inert}


def test_the_page_says_why_a_flag_is_only_accepted():
    text = {row[0].strip("`-"): row[-1] for row in rows(FLAGS_PAGE)}
    for name, meaning in text.items():
        if meaning.startswith("accepted"):
            assert re.fullmatch(r"accepted; .{8,}", meaning), name


def exported():
    """Return, by name, the type and labels of every metric that a process can have."""
    registry, out = CollectorRegistry(), {}
    collectors = []
    registry.register = collectors.append
    scheduler = SchedulerMetrics(registry)
    RoleMetrics(registry)
    for collector in collectors:
        if collector is scheduler.bare:
            for metric in collector.collect():
                out[metric.name] = (metric.type, ("action",) if metric.name.endswith("_by_action") else ())
            continue
        if isinstance(collector, GaugeTable):
            out.update({name: ("gauge", tuple(collector.labels)) for name, _ in collector.gauges})
            continue
        (metric,) = collector.describe()
        ending = "_total" if metric.type == "counter" else ""
        out[metric.name + ending] = (metric.type, tuple(collector._labelnames))
    (calls,) = ApiCalls({("get", "pods", 200, ""): 1}, "kai").collect()
    (sample,) = calls.samples
    out[sample.name] = (calls.type, tuple(sample.labels))
    (rights,) = MissingRights(SimpleNamespace(missing=lambda: {("get", "pods"): 1}), "kai").collect()
    (sample,) = rights.samples
    out[sample.name] = (rights.type, tuple(sample.labels))
    store = SimpleNamespace(rejected=[SimpleNamespace(cls=Pod)])
    (unread,) = ObjectsNotRead(store, "kai").collect()
    (sample,) = unread.samples
    out[sample.name] = (unread.type, tuple(sample.labels))
    return out


def test_the_page_lists_exactly_the_exported_metrics():
    page = {}
    for name, kind, labels, *_ in rows(section(MONITORING, "Metrics")):
        if name.startswith("`kai_"):
            known = OF_A_QUEUE if labels == "of a queue" else tuple(re.findall("`([a-zA-Z_]+)`", labels))
            page[name.strip("`")] = (kind, known)
    assert page == exported()


def test_role_help_equals_the_flags_page():
    text = {row[0].strip("`-"): row[-1] for row in rows(FLAGS_PAGE)}
    plain = {name: re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", told).replace("`", "") for name, told in text.items()}
    assert plain == MEANINGS


def test_every_exit_code_is_on_its_page():
    page = (DOCS / "reference" / "exit-codes.md").read_text()
    told = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    public = {name: value for name, value in vars(failures).items() if name.isupper() and not name.startswith("_")}
    assert told == sorted({0, *(code for code in public.values() if isinstance(code, int))})


def test_every_failing_command_is_on_the_exit_code_page():
    page = (DOCS / "reference" / "exit-codes.md").read_text()
    folder = Path(failures.__file__).parent
    named = set(re.findall(r"^\| `kai ([\w-]+)", page, re.MULTILINE))
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        saying_no = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef) and "return NO" in ast.unparse(node)
        }
        commands = {place: name for name, (place, _) in COMMANDS.items() if place.startswith(f"{path.stem}:")}
        # Of a module with one command any function may say no for it.
        asked = saying_no if len(commands) > 1 else {place.partition(":")[2] for place in commands if saying_no}
        assert {commands.get(f"{path.stem}:{function}") for function in asked} <= named, path.stem
        assert commands or not saying_no, path.stem
