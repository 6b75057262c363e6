"""Traces of every format, invented and small, and what is wrong with some."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from kai.basics.errors import ConfigError, InputError
from kai.cli.failures import finding_text
from kai.lab.traces.columns import formats
from kai.lab.traces.jobs import Demand, TraceJob
from kai.lab.traces.trace_reading import Trace, read_nodes, read_trace
from kai.manifests import RefusedError

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
HELIOS = "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
SLURM = "JobID|User|Account|Partition|Submit|ElapsedRaw|NNodes|ReqTRES|State\n"
OTHERS = "SenseTime Helios, Alibaba GPU 2023 (openb), Microsoft Philly, Slurm sacct"


def trace_in(folder: Path, name: str, text: str, *, skips_bad_rows: bool = False) -> Trace:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_trace(str(path), skips_bad_rows=skips_bad_rows)


def jobs_in(folder: Path, name: str, text: str, *, skips_bad_rows: bool = False) -> tuple[TraceJob, ...]:
    return trace_in(folder, name, text, skips_bad_rows=skips_bad_rows).jobs


def test_each_trace_format_has_a_title_and_telling_columns():
    assert {form.name for form in formats()} == {"helios", "kai", "openb", "philly", "slurm"}
    assert all(form.title and form.needs and "arrival" in form.job for form in formats())


def test_our_own_columns(tmp_path: Path):
    head = "arrival_s,duration_s,pods,gpus_per_pod,gpu_share,min_member,queue,user,priority,preemptible\n"
    late, early = jobs_in(tmp_path, "own.csv", head + "60,3600,4,8,,2,a,ann,train,true\n0,,1,,0.5,,b,bob,,\n")[::-1]
    assert (late.arrival, late.duration, late.pods, late.parts[0].gpus, late.minimum) == (60.0, 3600.0, 4, 8, 2)
    assert (late.queue, late.user, late.priority, late.preemptible) == ("a", "ann", "train", True)
    assert (early.parts, early.duration, early.minimum) == ((Demand(share=0.5),), None, 1)


def test_openb(tmp_path: Path):
    rows = "p0,6000,12288,1,460,A10|T4,LS,Running,10,70,40\np1,4000,1024,2,1000,,BE,Failed,20,25,21\n"
    first, second = jobs_in(tmp_path, "openb.csv", OPENB + rows)
    assert (first.arrival, first.duration, first.priority) == (10.0, 30.0, "inference")
    assert first.parts == (Demand(share=0.46, cpus=6.0, memory_mib=12288.0, models=("A10", "T4")),)
    assert (second.parts[0].share, second.parts[0].gpus, second.priority) == (None, 2, "train")


def test_openb_pods_that_never_ran_are_dropped_and_counted(tmp_path: Path):
    path = tmp_path / "openb.csv"
    rows = "p0,6000,12288,1,460,,LS,Running,10,70,40\np1,4000,1024,1,1000,,BE,Pending,20,25,\n"
    path.write_text(OPENB + rows, encoding="utf-8")
    trace = read_trace(str(path))
    assert (len(trace.jobs), trace.rows, trace.dropped) == (1, 2, {"pods that were never placed there": 1})


def test_nodes_of_openb(tmp_path: Path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,1024,0,\n", encoding="utf-8")
    first, second = read_nodes(str(path))
    assert (first.name, first.gpus, first.cpus, first.model) == ("n0", 2, 64.0, "P100")
    assert second.gpus == 0


def test_helios(tmp_path: Path):
    rows = (
        "7,u1,vc1,x,16,64,2,COMPLETED,2020-04-01 00:01:00,x,x,600,3\n"
        "5,u2,vc2,y,1,4,1,FAILED,2020-04-01 00:00:00,x,x,60,0\n"
    )
    first, second = jobs_in(tmp_path, "cluster_log.csv", HELIOS + rows)
    assert (first.name, first.arrival, first.parts[0].gpus, first.queue) == ("5", 0.0, 1, "vc2")
    assert (second.arrival, second.duration) == (60.0, 600.0)
    assert second.parts == (Demand(pods=2, gpus=8, cpus=32.0),)
    assert second.minimum == 2


def test_slurm(tmp_path: Path):
    rows = (
        "12|ann|lab|gpu|2026-01-05T08:00:00|3600|2|billing=64,cpu=64,gres/gpu=16,mem=512G,node=2|COMPLETED\n"
        "12.batch|||||3600|2||COMPLETED\n13|bob|ops|cpu|2026-01-05T08:00:30|60|1|cpu=4,mem=8192M,node=1|FAILED\n"
    )
    path = tmp_path / "sacct.txt"
    path.write_text(SLURM + rows, encoding="utf-8")
    trace = read_trace(str(path))
    first, second = trace.jobs
    assert (first.parts, first.queue) == ((Demand(pods=2, gpus=8, cpus=32.0, memory_mib=262144.0),), "lab")
    assert (second.arrival, second.parts) == (30.0, (Demand(cpus=4.0, memory_mib=8192.0),))
    assert trace.dropped == {"steps of jobs": 1}


def test_slurm_jobs_that_never_started_are_dropped_and_counted(tmp_path: Path):
    path = tmp_path / "sacct.txt"
    rows = (
        "1|ann|lab|gpu|2026-01-05T08:00:00|3600|1|cpu=4|COMPLETED\n"
        "2|ann|lab|gpu|2026-01-05T08:00:00|0|1|cpu=4|CANCELLED by 1000\n"
        "3|ann|lab|gpu|2026-01-05T08:00:00|0|1|cpu=4|PENDING\n"
        "4|ann|lab|gpu|2026-01-05T08:00:00|0|1|cpu=4|FAILED\n"
        "5|ann|lab|gpu|2026-01-05T08:00:00|70|1|cpu=4|CANCELLED by 1000\n"
    )
    path.write_text(SLURM + rows, encoding="utf-8")
    trace = read_trace(str(path))
    assert [(job.name, job.duration) for job in trace.jobs] == [("1", 3600.0), ("4", 0.0), ("5", 70.0)]
    assert trace.dropped == {"jobs that never started there": 2}


@pytest.mark.parametrize("start", ["None", "Unknown"])
def test_a_slurm_job_without_start_time_is_dropped(tmp_path: Path, start: str):
    path = tmp_path / "sacct.txt"
    rows = (
        f"1|2026-01-05T08:00:00|{start}|0|1|cpu=4|NODE_FAIL\n"
        "2|2026-01-05T08:00:00|2026-01-05T08:00:01|0|1|cpu=4|FAILED\n"
    )
    path.write_text("JobID|Submit|Start|ElapsedRaw|NNodes|ReqTRES|State\n" + rows, encoding="utf-8")
    trace = read_trace(str(path))
    assert ([job.name for job in trace.jobs], trace.dropped) == (["2"], {"jobs that never started there": 1})


def test_a_trace_without_any_usable_row_lists_the_causes(tmp_path: Path):
    rows = "1|ann|lab|gpu|2026-01-05T08:00:00|0|1|cpu=4|PENDING\n1.batch|||||0|1||\n"
    with pytest.raises(InputError, match=r"no job in 2 rows \(jobs that never started there: 1, steps of jobs: 1\)"):
        jobs_in(tmp_path, "sacct.txt", SLURM + rows)


def test_philly(tmp_path: Path):
    def attempt(start: str, end: str | None, *gpus: int) -> dict[str, object]:
        detail = [{"ip": f"m{at}", "gpus": [f"gpu{each}" for each in range(count)]} for at, count in enumerate(gpus)]
        return {"start_time": start, "end_time": end, "detail": detail}

    log = [
        {
            "jobid": "a",
            "vc": "v1",
            "user": "u",
            "submitted_time": "2017-10-01 00:00:00",
            "attempts": [
                attempt("2017-10-01 00:10:00", "2017-10-01 00:20:00", 8, 8),
                attempt("2017-10-01 01:00:00", "2017-10-01 01:30:00", 8, 8),
            ],
        },
        {"jobid": "b", "vc": "v1", "user": "u", "submitted_time": "2017-10-01 00:00:00", "attempts": []},
        {
            "jobid": "c",
            "vc": "v2",
            "user": "u",
            "submitted_time": "2017-10-02 00:00:00",
            "attempts": [attempt("2017-10-02 00:00:00", None, 1)],
        },
    ]
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(log), encoding="utf-8")
    trace = read_trace(str(path), skips_bad_rows=True)
    (job,) = trace.jobs
    assert (job.duration, job.pods, job.parts[0].gpus, job.queue, job.minimum) == (2400.0, 2, 8, "v1", 2)
    assert trace.dropped == {"they cannot be used": 2}


def test_a_bad_row_shows_its_line_and_skipped_share(tmp_path: Path):
    text = OPENB + "a,1,1,1,1000,,LS,R,0,10,5\nb,1,1,1,1000,,LS,R,0,10,3610\nc,1,1,1,1000,,LS,R,0,x,3610\n"
    with pytest.raises(RefusedError) as refused:
        jobs_in(tmp_path, "trace.csv", text)
    (finding,) = refused.value.findings
    assert (finding.code, finding.line) == ("R001", 3)
    assert finding.message == "duration is -3600 (column deletion_time is before scheduled_time)"
    assert finding.help.endswith("trace.csv --skip-bad-rows    2 of 3 rows would be left out")
    assert [job.name for job in jobs_in(tmp_path, "trace.csv", text, skips_bad_rows=True)] == ["a"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "soon,1,1,1,,1",
            'arrival_s is "soon", expected seconds from the start, or a time such as 2020-04-01 00:04:44',
        ),
        ("-5,1,1,1,,1", "arrival_s is -5 s, expected when the job arrived, 0 or more"),
        ("0,-1,1,1,,1", "duration is -1 (column duration_s is negative)"),
        ("0,1,0,1,,1", "pods is 0, expected at least 1"),
        ("0,1,1,1.5,,1", "gpus_per_pod gives 1.5 GPUs to each of 1 pods, expected a whole number"),
        ("0,1,1,,1.5,1", "gpu_share is 1.5, expected a part of one GPU"),
        ("0,1,1,,0.009,1", "gpu_share is 0.009, expected at least 0.01"),
        ("0,1,1,0.001,,1", "gpus_per_pod gives 0.001 of a GPU to each of 1 pods, expected at least 0.01"),
        ("0,1,2,1,,3", "min_member is 3, expected at most the number of pods, 2"),
        ("nan,1,1,1,,1", 'arrival_s is "nan", expected seconds from the start, or a time such as 2020-04-01 00:04:44'),
        ("1e300,1,1,1,,1", "arrival_s is 1e+300 s, expected at most 292 years"),
        ("0,1e10,1,1,,1", "duration_s is 1e+10 s, expected at most 292 years"),
        ("0,1,2.7,1,,1", 'pods is "2.7", expected a whole number'),
        ("0,1,1e30,1,,1", "pods is 1e+30, expected at most 100,000"),
        ("0,1,1,1e300,,1", "gpus_per_pod gives 1e+300, expected 0 to 65,535"),
        ("0,1", "found 2 fields, expected 6, one for each column"),
        ("0,1,1,1,,1,,1", "found 8 fields, expected 6, one for each column"),
        ("0,1,1,-1,,1", "gpus_per_pod gives -1, expected 0 to 65,535"),
        ("0,1,1,4,0.5,1", "gpu_share is 0.5 beside 4 of gpus_per_pod, expected a part of one GPU or whole ones"),
    ],
)
def test_what_cannot_be_used(row: str, said: str, tmp_path: Path):
    with pytest.raises(RefusedError, match="R001") as refused:
        jobs_in(tmp_path, "own.csv", f"arrival_s,duration_s,pods,gpus_per_pod,gpu_share,min_member\n{row}\n")
    assert refused.value.findings[0].message == said


@pytest.mark.parametrize("gpus", ["", "0", "1"])
def test_all_of_a_gpu_is_a_whole_one(gpus: str, tmp_path: Path):
    (job,) = jobs_in(tmp_path, "own.csv", f"arrival_s,gpus_per_pod,gpu_share\n0,{gpus},1\n")
    assert job.parts == (Demand(gpus=1),)


@pytest.mark.parametrize(("cpus", "memory"), [("-1", "1"), ("1", "-1"), ("1e300", "1"), ("1", "1e300")])
def test_impossible_amounts_of_pods_and_nodes_are_refused(cpus: str, memory: str, tmp_path: Path):
    with pytest.raises(RefusedError, match=r"R001 .* expected 0 to 268,435,456"):
        jobs_in(tmp_path, "own.csv", f"arrival_s,cpus_per_pod,memory_mib_per_pod\n0,{cpus},{memory}\n")
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(f"sn,cpu_milli,memory_mib,gpu,model\nn,{float(cpus) * 1000},{memory},8,x\n", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"R001 .* expected 0 to 268,435,456"):
        read_nodes(str(nodes))


@pytest.mark.parametrize("time", ["nan", "inf"])
def test_a_time_that_is_no_number_is_refused(time: str, tmp_path: Path):
    with pytest.raises(RefusedError, match=f'submit_time is "{time}", expected a time'):
        jobs_in(tmp_path, "log.csv", f"{HELIOS}a,u,v,n,1,1,1,C,{time},,,60,\n")


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        (5, "run_seconds is"),
        ([{"start_time": "2017-10-01 00:00:00", "end_time": "2017-10-01 00:01:00", "detail": 5}], ""),
        ([{"start_time": "2017-10-01 00:00:00", "end_time": "2017-10-01 00:01:00", "detail": [{"gpus": 5}]}], ""),
    ],
)
def test_malformed_attempts_of_a_philly_log_are_refused(attempts: object, said: str, tmp_path: Path):
    log = [{"jobid": "a", "vc": "v", "user": "u", "submitted_time": "2017-10-01 00:00:00", "attempts": attempts}]
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(log), encoding="utf-8")
    if said:
        with pytest.raises(RefusedError, match=said):
            read_trace(str(path))
    else:
        assert [job.parts[0].gpus for job in read_trace(str(path)).jobs] == [0]


def test_unknown_columns_name_the_nearest_format(tmp_path: Path):
    with pytest.raises(RefusedError, match="columns node_num are missing for SenseTime Helios, the nearest format"):
        jobs_in(tmp_path, "x.csv", HELIOS.replace("node_num", "nodes") + "1\n")


@pytest.mark.parametrize(
    ("head", "renames"),
    [
        ("arrival,duration_s,pods,gpus_per_pod", "rename arrival → arrival_s; "),
        (
            "submit_time,duration,gpus,team",
            "rename submit_time → arrival_s, duration → duration_s, gpus → gpus_per_pod, team → queue; ",
        ),
        ("a,b", ""),
    ],
)
def test_unknown_columns_suggest_renames_to_kais_own(head: str, renames: str, tmp_path: Path):
    with pytest.raises(RefusedError) as refused:
        jobs_in(tmp_path, "x.csv", f"{head}\n1\n")
    said, told = finding_text(refused.value.findings[0]).splitlines()
    assert (
        f"R002 found columns {head.replace(',', ', ')}, expected kai's own: arrival_s, and where known name, " in said
    )
    assert told == f"  help: {renames}other formats: {OTHERS}"


def test_kais_columns_accept_dates_and_durations_with_units(tmp_path: Path):
    rows = "2026-11-02T08:00:00,2h,8,a\n2026-11-02 08:00:30,90,1,b\n"
    trace = trace_in(tmp_path, "own.csv", "arrival_s,duration_s,gpus_per_pod,queue\n" + rows)
    assert [(job.arrival, job.duration) for job in trace.jobs] == [(0.0, 7200.0), (30.0, 90.0)]
    assert trace.began == 1793606400.0


def test_seconds_from_the_start_stay_as_they_are(tmp_path: Path):
    trace = trace_in(tmp_path, "own.csv", "arrival_s\n60\n2h\n")
    assert ([job.arrival for job in trace.jobs], trace.began) == ([60.0, 7200.0], None)


def test_columns_that_are_not_read_are_named_once(tmp_path: Path):
    trace = trace_in(tmp_path, "own.csv", "arrival_s,colour,shape\n0,red,round\n1,red,round\n")
    assert trace.unread == ("colour", "shape")
    assert [note[: note.index(".")] for note in trace.notes] == ["2 columns not read: colour, shape"]


def test_jobs_of_one_name_are_told_apart(tmp_path: Path):
    jobs = jobs_in(tmp_path, "own.csv", "arrival_s,name\n0,a\n1,a\n2,a-2\n3,a\n")
    assert [job.name for job in jobs] == ["a", "a-3", "a-2", "a-4"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "R002 found columns a, b, expected those of nodes"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "found no node in 0 rows"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn,1\n", "R001 found 2 fields, expected 5, one for each column"),
    ],
)
def test_a_file_without_nodes_says_what_nodes_have(text: str, said: str, tmp_path: Path):
    path = tmp_path / "nodes.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_nodes(str(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_is_read_in_the_encodings_of_spreadsheets(encoding: str, tmp_path: Path):
    path = tmp_path / "own.csv"
    path.write_text("arrival_s,queue\r\n5,équipe\r\n", encoding=encoding)
    assert [(job.arrival, job.queue) for job in read_trace(str(path)).jobs] == [(5.0, "équipe")]


@pytest.mark.parametrize(("name", "said"), [("x.csv", "no such file or folder"), ("x.csv.gz", "no gzip")])
def test_a_missing_or_broken_file_is_refused_in_words(name: str, said: str, tmp_path: Path):
    path = tmp_path / name
    if name.endswith("gz"):
        path.write_text("arrival_s\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"found {said}, expected"):
        read_trace(str(path))


def test_a_file_that_is_empty_says_so(tmp_path: Path):
    with pytest.raises(InputError, match=r"x\.csv: found nothing, expected a trace"):
        jobs_in(tmp_path, "x.csv", "")


def test_trailing_separators_without_columns_are_ignored(tmp_path: Path):
    (job,) = jobs_in(tmp_path, "own.csv", "arrival_s,pods\n5,2,,\n")
    assert (job.arrival, job.pods) == (5.0, 2)


@pytest.mark.parametrize(
    ("counted", "gpus"),
    [("gres/gpu:a100=16", 8), ("gres/gpu:a100=8,gres/gpu:h100=8", 8), ("gres/gpu=16,gres/gpu:a100=16", 8)],
)
def test_slurm_gpus_counted_by_type_are_counted_once(counted: str, gpus: int, tmp_path: Path):
    (job,) = jobs_in(tmp_path, "sacct.txt", f"{SLURM}1|u|a|p|2023-01-01T00:00:00|60|2|cpu=4,{counted}|COMPLETED\n")
    assert [(part.pods, part.gpus) for part in job.parts] == [(2, gpus)]


def test_an_empty_or_missing_trace_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="found no job in 0 rows"):
        jobs_in(tmp_path, "own.csv", "arrival_s\n")
    with pytest.raises(InputError, match="expected a trace"):
        read_trace(str(tmp_path / "none.csv"))


def test_a_compressed_file_that_is_cut_says_so(tmp_path: Path):
    path = tmp_path / "own.csv.gz"
    path.write_bytes(gzip.compress(b"arrival_s\n" * 99)[:-9])
    with pytest.raises(InputError, match=r"own\.csv\.gz: found a gzip that ends too soon, expected the whole file"):
        read_trace(str(path))


def test_parquet_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"install it with pip install 'kai-scheduler\[traces\]'"):
        read_trace(str(tmp_path / "x.parquet"))


def test_parquet_is_read_as_csv_is(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra traces is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra traces is not installed")
    columns = {
        "arrival_s": [30.0, 10.0],
        "duration_s": [60.0, None],
        "pods": [2, 1],
        "gpus_per_pod": [4, 1],
        "queue": ["a", "b"],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "own.parquet")
    rows = "arrival_s,duration_s,pods,gpus_per_pod,queue\n30,60,2,4,a\n10,,1,1,b\n"
    (tmp_path / "own.csv").write_text(rows, encoding="utf-8")
    table, text = (read_trace(str(tmp_path / name)) for name in ("own.parquet", "own.csv"))
    lineless = [[attrs.evolve(job, line=0, name="") for job in trace.jobs] for trace in (table, text)]
    assert lineless[0] == lineless[1]
    assert table.jobs[0].queue == "b"


def test_times_may_be_of_a_zone_in_the_west(tmp_path: Path):
    row = "{},u,a,x,8,8,1,COMPLETED,{},,,60,0\n"
    text = HELIOS + row.format(1, "2020-04-01T00:00:00-05:00") + row.format(2, "2020-04-01 06:00:00")
    assert [job.arrival for job in jobs_in(tmp_path, "cluster_log.csv", text)] == [0.0, 3600.0]


def test_an_arrival_that_is_missing_is_told(tmp_path: Path):
    with pytest.raises(RefusedError, match="arrival_s is empty, expected when the job arrived"):
        jobs_in(tmp_path, "own.csv", "arrival_s,duration_s\n,60\n")
