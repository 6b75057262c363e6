import pytest

from kai.cli.command import run


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ("quota: 8, limit: 4", ["note: c.yaml: queue a: its limit of gpu, 4, is below its quota, 8"]),
        (
            "quota: {cpu: 2}, limit: {cpu: 0}",
            ["note: c.yaml: queue a: its limit of cpu, 0, is below its quota, 2000"],
        ),
        ("quota: 4, limit: 4", []),
        ("quota: 4", []),
        ("limit: 4", []),
    ],
)
def test_a_limit_below_the_quota_is_told(tmp_path, monkeypatch, capsys, amounts, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(
        f"cluster: {{nodes: {{n1: {{gpu: 4}}}}}}\nqueues: {{a: {{{amounts}}}}}\ngroups: {{}}\n"
    )
    assert run(["simulate", "c.yaml"]) == 0
    assert capsys.readouterr().err.splitlines() == told
