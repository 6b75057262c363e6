"""Lines of the decision log: written, rotated, read again."""

import pytest

from kai.basics.errors import InputError
from kai.cluster.process import decisions
from kai.cluster.process.decisions import (
    Decision,
    Gainer,
    PassedOver,
    RotatedFile,
    Subject,
    evictions_in,
    line_of,
    numbers_in,
    read_decisions,
    read_line,
)
from tests.doubles.full_disk import Disk


def eviction(name="a-0", job="x/a", **more):
    return Decision(
        cycle=7,
        time="2026-01-31T12:00:00Z",
        kind="evict",
        subject=Subject(kind="Pod", namespace="x", name=name, uid=f"u-{name}"),
        job=job,
        queue="q",
        action="reclaim",
        rule="above its fair share",
        gainer=Gainer(namespace="y", name="b", queue="r"),
        numbers={"gpus": 0.5},
        input_hash="0f",
        **more,
    )


def test_a_line_is_read_as_it_was_written():
    assert read_line(line_of(eviction())) == eviction()


def test_a_line_has_the_names_that_programs_expect():
    line = line_of(eviction())
    assert line.endswith(b"}\n")
    assert b'"inputHash":"0f"' in line
    assert b"\n" not in line[:-1]


def test_fields_that_are_new_are_passed_over():
    assert read_line(b'{"later":1,' + line_of(eviction())[1:]) == eviction()


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b"7", b'{"cycle":1,"time', b'{"subject":3,"cycle":1}', b"\xff"])
def test_what_is_no_decision_is_passed_over(line):
    assert isinstance(read_line(line), str)


def test_the_oldest_file_is_read_first(tmp_path):
    file = RotatedFile(tmp_path / "log", most_bytes=2 * len(line_of(eviction("p00"))), most_files=3)
    for number in range(5):
        file.append(line_of(eviction(f"p{number:02}")))
    file.close()
    names = [each.subject.name for each in read_decisions(str(tmp_path / "log"))]
    assert names == ["p00", "p01", "p02", "p03", "p04"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1", "log.2"]


@pytest.mark.parametrize("files", [1, 2, 3])
def test_no_more_files_are_kept_than_asked_for(tmp_path, files):
    file = RotatedFile(tmp_path / "log", most_bytes=1, most_files=files)
    for number in range(6):
        file.append(line_of(eviction(f"p{number}")))
    file.close()
    assert len(list(tmp_path.iterdir())) == files
    names = [each.subject.name for each in read_decisions(str(tmp_path / "log"))]
    assert names == [f"p{number}" for number in range(6 - files, 6)]


def test_a_line_cut_by_a_crash_hides_no_other(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(line_of(eviction("p1")) + line_of(eviction("p2"))[:40] + b"\n" + line_of(eviction("p3")))
    assert [each.subject.name for each in read_decisions(str(path))] == ["p1", "p3"]


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    disk = Disk()
    monkeypatch.setattr(decisions, "open", disk.open, raising=False)
    file = RotatedFile(tmp_path / "log", most_bytes=100_000, most_files=1)
    file.append(line_of(eviction("p1")))
    disk.room = 40
    with pytest.raises(OSError, match="No space left"):
        file.append(line_of(eviction("p2")))
    file.close()
    assert (tmp_path / "log").read_bytes() == line_of(eviction("p1"))
    disk.room = None
    file.append(line_of(eviction("p3")))
    file.close()
    assert [each.subject.name for each in read_decisions(str(tmp_path / "log"))] == ["p1", "p3"]


def test_a_file_is_closed_even_on_a_full_disk(tmp_path, monkeypatch):
    disk = Disk()
    monkeypatch.setattr(decisions, "open", disk.open, raising=False)
    file = RotatedFile(tmp_path / "log", most_bytes=100_000, most_files=1)
    disk.room = 0
    file._open().write(b"waits in the buffer")
    file.close()
    assert file._file is None
    assert (tmp_path / "log").read_bytes() == b""


def test_only_this_account_may_read_the_file(tmp_path):
    file = RotatedFile(tmp_path / "log", most_bytes=1000, most_files=1)
    file.append(line_of(eviction()))
    file.close()
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_a_jobs_evictions_are_found_in_all_files(tmp_path):
    file = RotatedFile(tmp_path / "log", most_bytes=1, most_files=9)
    for name, job in (("a-0", "x/a"), ("c-0", "x/c"), ("a-1", "x/a")):
        file.append(line_of(eviction(name, job)))
    file.close()
    found = evictions_in(str(tmp_path / "log"))
    assert [(each.subject.name, each.job, each.gainer.name) for each in found] == [
        ("a-0", "x/a", "b"),
        ("c-0", "x/c", "b"),
        ("a-1", "x/a", "b"),
    ]


def test_a_log_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match=r"none: found no such file, expected the decision log"):
        list(read_decisions(str(tmp_path / "none")))
    with pytest.raises(InputError, match=r": found a folder, expected the decision log"):
        list(read_decisions(str(tmp_path)))


def test_only_numbers_are_kept():
    assert numbers_in(limit=4, used=2.5, queue="q", gang=True, many=(1, 2)) == {"limit": 4.0, "used": 2.5}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"cycle":1,"time\n', "no JSON"),
        (b"\x00\x00\xff\n", "no JSON"),
        (b"[" * 100_000 + b"\n", "no JSON"),
        (b'{"cycle":1,"time', "cut short"),
        (b"[1]\n", "no JSON object"),
        (b'{"cycle":1,"time":"t"}\n', "no kind"),
        (b'{"cycle":1,"time":"t","kind":"evict"}\n', "no subject"),
        (line_of(eviction()).replace(b'"q"', b"[7]"), "queue: [7]"),
        (line_of(eviction()).replace(b"0.5", b'"half"'), 'numbers.gpus: "half"'),
        (line_of(eviction()).replace(b'{"gpus":0.5}', b"null"), "numbers: null"),
        (line_of(eviction()).replace(b'"cycle":7', b'"cycle":true'), "cycle: true"),
    ],
)
def test_skipped_lines_are_counted_and_the_first_is_named(tmp_path, line, why):
    path = tmp_path / "log"
    path.write_bytes(line_of(eviction("p1")) + b"\n" + line_of(eviction("p2")) + line)
    passed = PassedOver()
    assert [each.subject.name for each in read_decisions(str(path), passed)] == ["p1", "p2"]
    assert str(passed) == f"{path}: 1 line that is no decision was passed over: line 4, found {why}"


def test_the_first_skipped_line_is_from_the_oldest_file(tmp_path):
    (tmp_path / "log.1").write_bytes(line_of(eviction("p1")) + b"nonsense\n")
    (tmp_path / "log").write_bytes(b"{}\n" + line_of(eviction("p2"))[:30])
    passed = PassedOver()
    assert [each.subject.name for each in read_decisions(str(tmp_path / "log"), passed)] == ["p1"]
    start = f"{tmp_path / 'log.1'}: 3 lines that are no decisions were passed over: "
    assert str(passed) == f"{start}the first of them line 2, found no JSON"


def test_a_whole_log_has_nothing_passed_over(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(line_of(eviction("p1")))
    passed = PassedOver()
    assert len(list(read_decisions(str(path), passed))) == 1
    assert str(passed) == ""
