import json

import pytest
import yaml

from kai.answers.documents.document import as_json
from kai.answers.documents.nodes import NodeItem
from kai.answers.documents.nodes import node_slots as read_nodes
from kai.answers.outcomes.gpu_slots import node_slots
from kai.cli.arguments import read_selector
from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.listing.nodes import node_view, short_type
from kai.cli.sources import Source
from kai.cli.tables import shown_width

LAB = Source(place="examples/lab")
SMALL = """
about: Two nodes, one of them half taken.
cluster:
  nodes:
    a: {gpu: 4, labels: {zone: x}}
    b: {gpu: 4, labels: {zone: z}}
    cpu: {gpu: 0}
queues: {root: {quota: 8}, q: {parent: root, quota: 8}}
groups:
  half: {queue: q, members: 2, each: {fraction: 0.5}, runs_on: a}
  more: {queue: q, each: {fraction: 0.5}}
  two: {queue: q, each: {gpu: 2}, runs_on: a}
run: [allocate]
"""


@pytest.fixture(scope="module")
def lab():
    return LAB.decide()


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return Source(place=str(path))


def text(result, *, source=LAB, width=0, output="table", **wanted):
    console = Console(columns=width, output=output)
    return node_view(source, console, result, **{"by": "", "job": "", "free": 0, **wanted}).text(console)


def test_every_gpu_is_a_cell_and_racks_are_divided(lab):
    assert text(lab, by="rack", width=100).splitlines() == [
        "NODE                   TYPE  GPU 0  1  2  3  4  5  6  7   FREE  SHARED GPUS",
        "rack-a · 32 GPUs · 0 free",
        "  gpu-01               H100      C█ C█ C█ C█ e█ e█ e█ e█     0  4: ¼+¼+¼+¼   5-7: ½+½",
        "  gpu-02               H100      e█ e█ e█ e█ e█ e█ e█ e█     0  0-4: ¼+¼+¼+¼   5-7: ½+½",
        "  gpu-03               H100      C█ C█ C█ C█ C█ C█ C█ C×     0  -",
        "  gpu-04               H100      C× C× C× C× C× C× C× C×     0  -",
        "rack-b · 32 GPUs · 0 free",
        "  gpu-05               H100      C× C× C× C× E× E× E× E×     0  -",
        "  gpu-06               H100      L█ L█ L█ L█ L█ L█ L█ L█     0  -",
        "  gpu-07               H100      V█ V█ V█ V█ V█ V█ V█ V█     0  -",
        "  gpu-08               H100      V█ V█ V█ V█ V█ V█ V█ V█     0  -",
        "rack-c · 32 GPUs · 0 free",
        "  gpu-09 … gpu-12 (4)  H100      L█ L█ L█ L█ L█ L█ L█ L█     0  -",
        "rack-d · 4 GPUs · 0 free",
        "  gpu-13               A100      S█ S█ S█ S█                 0  -",
        "C chat  L language  S scratch  E search  V vision   s▄ partly granted   · free   ○ held   × leaving",
        "! unhealthy",
        "largest gang that would start now without evicting: none, 0 of 100 GPUs are free",
    ]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_parts_that_are_longer_in_ascii_fit_as_well(lab, width):
    console = Console(columns=width, plain=True)
    shown = console.plainly(node_view(LAB, console, lab, by="rack", job="", free=0).text(console)).splitlines()
    assert max(map(len, shown)) <= width
    assert any("1/4+1/4" in line for line in shown) is (width > 80)


def test_a_narrow_terminal_keeps_the_map(lab):
    assert text(lab, width=60).splitlines()[:3] == [
        "NODE                 TYPE  GPU 0  1  2  3  4  5  6  7   FREE",
        "gpu-01               H100      C█ C█ C█ C█ e█ e█ e█ e█     0",
        "gpu-02               H100      e█ e█ e█ e█ e█ e█ e█ e█     0",
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(lab, width):
    assert max(map(shown_width, text(lab, by="rack", width=width).splitlines())) <= width


def test_a_job_shows_its_nodes_alone(lab):
    lines = text(lab, job="lab/vit-large").splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["gpu-04", "gpu-05"]
    assert "gpu-06" not in text(lab, job="vit-large")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"by": "rack"}, "no rack has 64 free GPUs; the most is 0"),
        ({}, "no node has 64 free GPUs; the most is 0"),
    ],
)
def test_where_nothing_has_room_the_most_is_told(lab, wanted, said):
    view = node_view(LAB, Console(), lab, **{"by": "", "job": "", "free": 64, **wanted})
    assert view.text(Console()) == said


def test_what_is_free_is_told_in_gangs(small):
    assert text(small.decide(), source=small).splitlines() == [
        "NODE  TYPE  GPU 0  1  2  3   FREE  SHARED GPUS",
        "a     -         Q█ Q█ q█ q▄     0  2: ½+½   3: ½",
        "b     -         ·  ·  ·  ·      4  -",
        "Q q   s▄ partly granted   · free   ○ held   × leaving   ! unhealthy",
        (
            "largest gang that would start now without evicting: 1 pod x 4 GPUs, or 2 pods x 2 GPUs, or 4 pods x 1 GPU "
            "(4 of 8 GPUs are free)"
        ),
        "1 node without GPUs not shown (-o wide)",
    ]


def test_only_domains_with_room_are_kept(small):
    result = small.decide()
    assert "a  " not in text(result, source=small, free=1)
    assert text(result, source=small, by="zone", free=4).splitlines()[1] == "z · 4 GPUs · 4 free"
    assert text(result, source=small, free=5).splitlines()[0] == "no node has 5 free GPUs; the most is 4"


def test_labels_choose_nodes(small):
    chosen = Source(place=small.place, selector=read_selector("zone=z"))
    assert "b  " in text(chosen.decide(), source=chosen)
    assert "a  " not in text(chosen.decide(), source=chosen)


def test_json_says_what_each_gpu_is_used_for(small, capsys):
    assert run(["nodes", "-f", small.place, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "NodeList"
    first = document["items"][0]
    assert (first["name"], first["free"]) == ("a", {"whole": 0, "fractions": 0.5})
    assert [gpu["state"] for gpu in first["gpus"]] == ["used", "used", "shared", "shared"]
    assert first["gpus"][3]["free"] == 0.5
    (user,) = first["gpus"][3]["users"]
    assert (user["job"], user["queue"], user["share"], user["state"]) == ("more", "q", 0.5, "used")


def test_a_node_that_is_off_has_nothing_free(tmp_path):
    document = yaml.safe_load(SMALL)
    document["cluster"]["nodes"]["b"]["cordoned"] = True
    path = tmp_path / "off.yaml"
    path.write_text(yaml.safe_dump(document))
    source = Source(place=str(path))
    lines = text(source.decide(), source=source).splitlines()
    assert lines[2].split() == ["b", "-", "·", "·", "·", "·", "off", "-"]
    assert lines[4] == "largest gang that would start now without evicting: none, 0 of 8 GPUs are free"


@pytest.mark.parametrize(
    ("product", "short"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("Tesla-V100-SXM2-16GB", "V100"),
        ("NVIDIA-GeForce-RTX-4090", "4090"),
        ("AMD_Instinct_MI300X", "MI300X"),
        ("Odd", "Odd"),
        ("", "-"),
    ],
)
def test_a_gpu_product_is_shortened_to_its_usual_name(product, short):
    assert short_type(product) == short


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "zone"], "error: command line: --by: found 'zone', expected one of kubernetes.io/hostname, nvidia"),
        (["--job", "nope"], "error: command line: --job: found 'nope', expected a job, as kai jobs lists it"),
    ],
)
def test_what_is_not_there_is_told_on_one_line(capsys, arguments, words):
    assert run(["nodes", "-f", "examples/lab", *arguments]) == 4
    assert capsys.readouterr().err.startswith(words)


SLICED = """
about: A node that is cut into slices, three alike, and one without.
cluster:
  nodes:
    cut: {gpu: 0, resources: {nvidia.com/mig-1g.10gb: 7, nvidia.com/mig-2g.20gb: 3}}
    more-0: {gpu: 0, resources: {nvidia.com/mig-1g.10gb: 1}}
    more-1: {gpu: 0, resources: {nvidia.com/mig-1g.10gb: 1}}
    more-2: {gpu: 0, resources: {nvidia.com/mig-1g.10gb: 1}}
    whole: {gpu: 2}
    cpu: {gpu: 0}
queues: {root: {quota: 32}, q: {parent: root, quota: 32}}
groups:
  small: {queue: q, members: 5, each: {nvidia.com/mig-1g.10gb: 1}, runs_on: cut}
  large: {queue: q, members: 2, each: {nvidia.com/mig-2g.20gb: 1}, runs_on: cut}
  next: {queue: q, each: {nvidia.com/mig-2g.20gb: 1}}
  last: {queue: q, each: {nvidia.com/mig-2g.20gb: 1}}
run: [allocate]
"""


@pytest.fixture
def sliced(tmp_path):
    path = tmp_path / "sliced.yaml"
    path.write_text(SLICED)
    return Source(place=str(path))


def test_slices_are_counted_by_profile(sliced):
    assert text(sliced.decide(), source=sliced).splitlines() == [
        "NODE                 TYPE  GPU 0  1   FREE  SHARED GPUS  MIG SLICES",
        "cut                  -                   0  -            1g.10gb 5 of 7   2g.20gb 3 of 3",
        "more-0 … more-2 (3)  -                   0  -            1g.10gb 0 of 1",
        "whole                -         ·  ·      2  -            -",
        "s▄ partly granted   · free   ○ held   × leaving   ! unhealthy",
        (
            "largest gang that would start now without evicting: 1 pod x 2 GPUs, or 2 pods x 1 GPU "
            "(2 of 2 GPUs are free); MIG slices that are free: 5 x 1g.10gb"
        ),
        "1 node without GPUs not shown (-o wide)",
    ]


def test_a_job_shows_the_nodes_where_it_has_slices(sliced):
    lines = text(sliced.decide(), source=sliced, job="large").splitlines()
    assert [line.split()[0] for line in lines[1:2]] == ["cut"]
    assert lines[-1] == "MIG slices that are free: 2 x 1g.10gb"


def test_json_says_which_pods_have_slices(sliced, capsys):
    assert run(["nodes", "-f", sliced.place, "-o", "json"]) == 0
    items = {item["name"]: item["migSlices"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert items["whole"] == []
    small, large = items["cut"]
    assert {key: small[key] for key in small if key != "users"} == {
        "resource": "nvidia.com/mig-1g.10gb",
        "total": 7,
        "used": 5,
        "held": 0,
        "leaving": 0,
        "free": 2,
    }
    assert [(user["job"], user["queue"], user["count"], user["state"]) for user in large["users"]] == [
        ("large", "q", 1, "used"),
        ("large", "q", 1, "used"),
        ("next", "q", 1, "used"),
    ]


def test_nodes_with_slices_alone_say_nothing_of_gangs(sliced, tmp_path):
    document = yaml.safe_load(SLICED)
    del document["cluster"]["nodes"]["whole"]
    path = tmp_path / "alone.yaml"
    path.write_text(yaml.safe_dump(document))
    source = Source(place=str(path))
    assert "largest gang" not in text(source.decide(), source=source)


def test_slices_are_read_back_as_they_were_written(sliced):
    found = node_slots(sliced.decide().outcome)
    assert [node.slices for node in read_nodes({"items": [as_json(NodeItem.of(node)) for node in found]})] == [
        node.slices for node in found
    ]


def test_a_full_nodes_slices_count_as_quota_counts_them(sliced, capsys):
    assert run(["why", "node/cut", "-f", sliced.place]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("cut has 2 GPUs idle: of 13 GPUs 11 used.\n")
    assert "MIG slices: nvidia.com/mig-1g.10gb 5 of 7 in use, nvidia.com/mig-2g.20gb 3 of 3 in use" in shown


@pytest.mark.parametrize("width", [30, 40])
def test_the_meaning_of_letters_fits_a_narrow_terminal(lab, width):
    lines = text(lab, width=width).splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("C chat"))
    assert max(map(shown_width, lines[first:])) <= width
