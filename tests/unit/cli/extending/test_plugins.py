import json

import yaml

from kai.cli.command import run


def listed(capsys, *arguments):
    assert run(["plugins", "-o", "json", *arguments]) == 0
    return {(each["kind"], each["name"]): each for each in json.loads(capsys.readouterr().out)["items"]}


def test_built_ins_are_listed_with_origin_hooks_and_options(capsys):
    found = listed(capsys)
    binpack = found["plugin", "binpack"]
    assert binpack["origin"].startswith("kai-scheduler ")
    assert (binpack["enabled"], binpack["hooks"], binpack["problem"]) == (True, ["Density"], "")
    assert binpack["options"] == {
        "cpu": "true or false or number, 0 or more, default 1",
        "gpu": "true or false or number, 0 or more, default 1",
    }
    assert found["plugin", "topology"]["hooks"] == ["Domains"]
    assert (found["plugin", "spread"]["enabled"], found["plugin", "spread"]["position"]) == (False, None)
    assert found["action", "allocate"]["position"] == 1


def test_a_configuration_says_what_is_enabled(capsys, tmp_path):
    policy = tmp_path / "p.yaml"
    policy.write_text("plugins: {spread: {}}\nactions: [reclaim]\n")
    found = listed(capsys, "--config", str(policy))
    assert [key for key, each in found.items() if each["enabled"]] == [("action", "reclaim"), ("plugin", "spread")]


def test_the_table_and_yaml_say_the_same(capsys):
    names = [name for _, name in listed(capsys)]
    assert run(["plugins"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "KIND", "ENABLED", "ORIGIN", "DOES"]
    assert [row.split()[0] for row in rows] == names
    assert run(["plugins", "-o", "wide", "-q"]) == 0
    wide = capsys.readouterr()
    assert "kai.plugins.scores:Binpack" in wide.out
    assert wide.err == ""
    assert run(["plugins", "-o", "yaml"]) == 0
    assert [each["name"] for each in yaml.safe_load(capsys.readouterr().out)["items"]] == names


def test_a_narrow_terminal_keeps_what_a_plugin_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["plugins"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "KIND", "ENABLED", "DOES"]
    assert max(map(len, rows)) <= 80
    assert next(row for row in rows if row.startswith("taints ")).endswith("Refuse nodes with a repelling taint that …")


def test_a_configuration_that_cannot_be_read_is_told(capsys, tmp_path):
    assert run(["plugins", "--config", str(tmp_path / "missing.yaml")]) == 4
    assert "missing.yaml: no such file" in capsys.readouterr().err
    two = tmp_path / "two.yaml"
    two.write_text("a: 1\n---\nb: 2\n")
    assert run(["plugins", "--config", str(two)]) == 4
    assert "found 2 documents, expected one" in capsys.readouterr().err
    broken = tmp_path / "broken.yaml"
    broken.write_text("plugins: [")
    assert run(["plugins", "--config", str(broken)]) == 4
    assert "broken.yaml" in capsys.readouterr().err


def test_a_configuration_of_unknown_plugins_is_refused(capsys, tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text("plugins: {binpak: {}, priority: {weigth: 2}}\n")
    assert run(["plugins", "--config", str(path)]) == 4
    told = capsys.readouterr().err
    assert "found 'binpak', expected the name of an installed plugin" in told
    assert "weigth" in told
    assert "did you mean binpack?" in told


def test_each_plugin_function_is_timed_on_a_written_cluster(capsys):
    path = "examples/lab"
    assert run(["plugins", "--time", path, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "PluginTimes"
    by_name = {(each["plugin"], each["hook"]): each for each in found["items"]}
    assert by_name["proportion", "open"]["calls"] == 1
    assert all(each["calls"] > 0 and 0 <= each["seconds"] <= found["seconds"] for each in found["items"])
    assert sum(each["share"] for each in found["items"]) <= 1
    assert run(["plugins", "--time", path]) == 0
    told = capsys.readouterr()
    head, *rows = told.out.splitlines()
    assert head.split() == ["PLUGIN", "HOOK", "CALLS", "TOTAL", "MS", "SHARE"]
    assert {(row.split()[0], row.split()[1]) for row in rows} == set(by_name)
    assert told.err.startswith("plugins took ")


def test_a_case_without_a_cluster_cannot_be_timed(capsys, tmp_path):
    assert run(["plugins", "--time", str(tmp_path / "missing")]) == 4
    assert "missing" in capsys.readouterr().err


BROKEN = """
raise RuntimeError("no licence")
"""


def test_one_broken_package_breaks_nothing_else(capsys, tmp_path, monkeypatch):
    (tmp_path / "kai_broken.py").write_text("NUMBER = 3\nclass Closed: pass\n")
    (tmp_path / "kai_raises.py").write_text(BROKEN)
    info = tmp_path / "kai_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kai-broken\nVersion: 1.0\n")
    points = {
        "number": "kai_broken:NUMBER",
        "closed": "kai_broken:Closed",
        "licence": "kai_raises:X",
        "gone": "kai_no:X",
    }
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[kai.plugins]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {name: each for (_, name), each in listed(capsys).items()}
    assert {name: found[name]["problem"] for name in points} == {
        "number": "found int at kai_broken:NUMBER, expected a class with a method open",
        "closed": "found a class at kai_broken:Closed, expected a class with a method open",
        "licence": "cannot be loaded from kai_raises:X: RuntimeError: no licence",
        "gone": "cannot be loaded from kai_no:X: ModuleNotFoundError: No module named 'kai_no'",
    }
    assert found["binpack"]["enabled"]
    assert run(["plugins"]) == 0
    table = capsys.readouterr()
    assert "broken: found int at kai_broken:NUMBER" in table.out
    assert "broken: number of kai-broken 1.0: found int" in table.err
    assert run(["simulate", "examples/rack", "-q"]) == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text("with: {licence: {}}\n")
    assert run(["plugins", "--config", str(policy)]) == 4
    assert "plugin 'licence' of kai-broken 1.0: cannot be loaded" in capsys.readouterr().err


def test_two_packages_offering_a_default_plugin_are_marked_conflicting(capsys, tmp_path, monkeypatch):
    for package in ("kai-alpha", "kai-beta"):
        info = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        target = "spread:Spread" if package == "kai-alpha" else "gpu_pack:GpuPack"
        (info / "entry_points.txt").write_text(f"[kai.plugins]\nbinpack = kai.plugins.{target}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(["plugins", "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    offers = {each["origin"].split()[0]: each for each in items if each["name"] == "binpack"}
    assert offers.keys() == {"kai-alpha", "kai-beta", "kai-scheduler"}
    assert len({each["position"] for each in offers.values()}) == 1
    assert sorted(rival.split()[0] for rival in offers["kai-alpha"]["rivals"]) == ["kai-beta", "kai-scheduler"]
    assert not any(each["rivals"] for each in items if each["name"] != "binpack")
    assert run(["plugins"]) == 0
    table = capsys.readouterr()
    assert table.out.count("conflict: also in ") == 3
    assert table.err.count("conflict: binpack is offered by ") == 1
    # A command that uses the plugin cannot choose; one that does not goes on.
    assert run(["jobs", "--from", "examples/rack", "-q"]) == 4
    told = capsys.readouterr().err
    assert "plugins.binpack: found 'binpack' in " in told
    assert "or switch the plugin off (binpack: false under with:)" in told
    policy = tmp_path / "policy.yaml"
    policy.write_text("with: {binpack: false}\n")
    assert run(["simulate", "examples/rack", "-q", "--config", str(policy)]) == 0
    assert run(["lint", "examples/rack", str(policy)]) == 0


def test_each_plugin_says_in_one_line_what_it_does(capsys):
    for (_, name), each in listed(capsys).items():
        assert each["does"].endswith("."), name
        assert "``" not in each["does"], name
