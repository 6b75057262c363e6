"""Accounting as Slurm 22.05.8 and 24.11.5 wrote it in runs; a test says where a row was changed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kai.basics.errors import InputError
from kai.cli.failures import finding_text
from kai.lab.traces.jobs import Demand
from kai.lab.traces.trace_reading import Trace, read_trace
from kai.manifests import RefusedError

HEAD = "JobID|User|Account|Submit|Start|ElapsedRaw|NNodes|ReqTRES|State"
FULL = "JobID|Account|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList|ReqTRES|AllocTRES|State"
COMMAND = "SLURM_TIME_FORMAT=%s sacct -a -X -P -D -S now-7days -E now -o JobID,"


def trace_of(
    folder: Path, head: str, *rows: str, name: str = "sacct.txt", skips: bool = False, since: float | None = None
) -> Trace:
    path = folder / name
    path.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    return read_trace(str(path), skips_bad_rows=skips, since=since)


def shapes(trace: Trace) -> list[list[tuple[int, int]]]:
    return [[(part.pods, part.gpus) for part in job.parts] for job in trace.jobs]


def row(tres: str, job: str = "1", submit: str = "2026-11-28T13:00:00", start: str = "", nodes: int = 1) -> str:
    return f"{job}|alice|ml|{submit}|{start or submit}|3600|{nodes}|{tres}|COMPLETED"


# --- GPUs ----------------------------------------------------------------------------------------------------------


def test_unevenly_shared_gpus_are_spread_whole_over_nodes(tmp_path: Path):
    trace = trace_of(
        tmp_path,
        HEAD,
        "75|alice|ml|2026-11-28T13:54:59|2026-11-28T13:55:00|10|2|billing=52,cpu=2,gres/gpu=5,mem=2000M,node=2|COMPLETED",
        "76|alice|ml|2026-11-28T13:54:59|2026-11-28T13:55:00|10|2|billing=62,cpu=2,gres/gpu=6,mem=2000M,node=2|COMPLETED",
        "77|alice|ml|2026-11-28T13:54:59|2026-11-28T13:55:00|10|4|cpu=4,gres/gpu=2,mem=4000M,node=4|COMPLETED",
    )
    assert shapes(trace) == [[(1, 3), (1, 2)], [(2, 3)], [(2, 1), (2, 0)]]
    assert [job.minimum for job in trace.jobs] == [2, 2, 4]


def test_an_exclusive_job_has_what_it_held(tmp_path: Path):
    trace = trace_of(
        tmp_path,
        "JobID|Submit|ElapsedRaw|NNodes|ReqTRES|AllocTRES|State",
        "23|2026-11-28T13:50:51|3600|2|cpu=2,mem=2000M,node=2|cpu=16,gres/gpu=8,mem=16000M,node=2|COMPLETED",
        "29|2026-11-28T13:50:56|3600|1|cpu=1,gres/gpu=1,mem=1000M|cpu=8,gres/gpu=4,mem=8000M,node=1|COMPLETED",
    )
    assert [job.parts for job in trace.jobs] == [
        (Demand(pods=2, gpus=4, cpus=8.0, memory_mib=8000.0),),
        (Demand(pods=1, gpus=4, cpus=8.0, memory_mib=8000.0),),
    ]


def test_missing_allocation_columns_are_noted_with_the_complete_command(tmp_path: Path):
    notes = trace_of(tmp_path, HEAD, row("cpu=1")).notes
    assert notes[0] == (
        "Without column AllocTRES, jobs that took whole nodes (--exclusive) count for what they asked for, "
        "not for what they held."
    )
    assert notes[1].startswith("Without column Eligible, jobs of arrays")
    assert notes[2].startswith(f"All columns: {COMMAND}")


def test_nothing_is_said_of_a_file_with_all_columns(tmp_path: Path):
    text = "1|ml|1795874099|1795874099|1795874100|1795874110|10|1|v1|cpu=1,gres/gpu=1|cpu=1,gres/gpu=1|COMPLETED"
    assert trace_of(tmp_path, FULL, text).notes == ()


@pytest.mark.parametrize(
    ("asked", "types"),
    [
        ("gres/gpu:a100=4,gres/gpu=4", ("a100",)),
        ("gres/gpu:a100=2", ("a100",)),
        ("gres/gpu:a100=2,gres/gpu:h100=2", ("a100", "h100")),
        ("gres/gpu=4", ()),
    ],
)
def test_the_gpu_type_comes_from_the_request(asked: str, types: tuple[str, ...], tmp_path: Path):
    """24.11 names the type in AllocTRES, also where any type would have done."""
    held = "gres/gpu:v100=4,gres/gpu=4"
    text = f"1|2026-11-28T13:00:00|60|1|{asked}|{held}|COMPLETED"
    (job,) = trace_of(tmp_path, "JobID|Submit|ElapsedRaw|NNodes|ReqTRES|AllocTRES|State", text).jobs
    assert (job.parts[0].types, job.parts[0].gpus) == (types, 4)


def test_shards_are_gpu_parts_of_the_largest_request(tmp_path: Path):
    trace = trace_of(
        tmp_path, HEAD, row("cpu=1,gres/shard=1"), row("cpu=1,gres/shard=4", "2"), row("gres/shard=4", "3", nodes=2)
    )
    assert [(job.parts[0].gpus, job.parts[0].share) for job in trace.jobs] == [(0, 0.25), (1, None), (0, 0.5)]
    assert "A GPU has 4 shards, the most that a pod asks for: accounting does not say how many." in trace.assumptions


def test_mps_is_hundredths_of_a_gpu(tmp_path: Path):
    trace = trace_of(tmp_path, HEAD, row("gres/mps=25"), row("gres/mps=100", "2"), row("gres/mps=150", "3"))
    assert [(job.parts[0].gpus, job.parts[0].share) for job in trace.jobs] == [(0, 0.25), (1, None), (2, None)]


def test_nodes_come_from_resources_where_no_column_has_them(tmp_path: Path):
    (job,) = trace_of(tmp_path, "JobID|Submit|ElapsedRaw|ReqTRES", "1|2026-11-28T13:00:00|60|gres/gpu=8,node=2").jobs
    assert [(part.pods, part.gpus) for part in job.parts] == [(2, 4)]


# --- Which rows are jobs -------------------------------------------------------------------------------------------


def test_submissions_that_slurm_refused_are_counted_apart(tmp_path: Path):
    """52 is as 22.05 writes it, 53 as 24.11 does; 54 failed within a second of its start."""
    trace = trace_of(
        tmp_path,
        FULL,
        "46|ml|1|1|2|102|100|1|v1|gres/gpu=1|gres/gpu=1|COMPLETED",
        "52|ml|2026-11-28T13:43:40|2026-11-28T13:43:40|2026-11-28T13:43:40|2026-11-28T13:43:40|0|1|None assigned|"
        "gres/gpu=5||FAILED",
        "53|ml|2026-11-28T13:43:40|Unknown|None|2026-11-28T13:43:40|0|1|None assigned|gres/gpu=13||FAILED",
        "54|ml|5|5|5|5|0|1|v1|gres/gpu=1|gres/gpu=1|FAILED",
        "55|ml|5|5|None|9|0|1|None assigned|gres/gpu=1||CANCELLED by 0",
        "56_[1-3%1]|ml|5|Unknown|Unknown|Unknown|0|1|None assigned|gres/gpu=1||PENDING",
    )
    assert [job.name for job in trace.jobs] == ["46", "54"]
    assert trace.dropped == {"submissions that Slurm refused": 2, "jobs that never started there": 2}


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("JobID|Submit|ElapsedRaw|AllocTRES|State", "1|5|0||FAILED"),
        ("JobID|Submit|Elapsed|AllocTRES|State", "1|5|00:00:00||FAILED"),
        ("JobID|Submit|ElapsedRaw|NodeList|ReqTRES|State", "1|5|0|None assigned|cpu=1|FAILED"),
    ],
)
def test_any_column_that_tells_a_refused_submission_is_enough(head: str, text: str, tmp_path: Path):
    with pytest.raises(InputError, match=r"found no job in 1 row \(submissions that Slurm refused: 1\)"):
        trace_of(tmp_path, head, text)


def test_a_job_without_resources_yet_is_left_out(tmp_path: Path):
    trace = trace_of(
        tmp_path,
        "JobID|Submit|ElapsedRaw|NNodes|ReqTRES|AllocTRES|State",
        "1|5|3|1|||RUNNING",
        "2|5|3|1|cpu=1|cpu=1|RUNNING",
    )
    assert [job.name for job in trace.jobs] == ["2"]
    assert trace.dropped == {"jobs whose resources Slurm had not noted yet": 1}


def test_a_job_arrives_when_it_could_first_start(tmp_path: Path):
    """79 has --begin, 80 and 81 are a chain of afterok, 83_0 and 83_2 tasks of an array with %2."""
    head = "JobID|Submit|Eligible|Start|ElapsedRaw|ReqTRES|State"
    day = "2026-11-28T13"
    trace = trace_of(
        tmp_path,
        head,
        f"79|{day}:54:59|{day}:56:39|{day}:56:40|6|gres/gpu=1|COMPLETED",
        f"80|{day}:54:59|{day}:54:59|{day}:55:00|60|gres/gpu=1|COMPLETED",
        f"81|{day}:54:59|{day}:56:01|{day}:56:01|31|gres/gpu=1|COMPLETED",
        f"83_0|{day}:54:59|{day}:54:59|{day}:55:00|30|gres/gpu=1|COMPLETED",
        f"83_2|{day}:54:59|{day}:55:31|{day}:55:31|30|gres/gpu=1|COMPLETED",
        f"84|{day}:54:59|Unknown|{day}:55:31|30|gres/gpu=1|COMPLETED",
    )
    assert {job.name: job.arrival for job in trace.jobs} == {
        "80": 0.0,
        "83_0": 0.0,
        "84": 0.0,
        "83_2": 32.0,
        "81": 62.0,
        "79": 100.0,
    }


def test_each_run_of_a_requeued_or_resized_job_counts(tmp_path: Path):
    day = "2026-11-28T1"
    trace = trace_of(
        tmp_path,
        HEAD,
        f"21|alice|ml|{day}3:50:48|{day}3:50:49|3600|1|gres/gpu=1|PREEMPTED",
        f"21|alice|ml|{day}4:50:53|{day}4:52:54|60|1|gres/gpu=1|COMPLETED",
        f"92|alice|ml|{day}3:55:12|{day}3:55:13|700|2|gres/gpu=2,node=2|RESIZING",
        f"92|alice|ml|{day}4:06:53|{day}4:06:53|53|1|gres/gpu=1|COMPLETED",
    )
    found = [(job.name, job.arrival, job.duration, job.pods) for job in trace.jobs]
    assert found == [("21", 0, 3600, 1), ("92", 264, 700, 2), ("92-2", 965, 53, 1), ("21-2", 3605, 60, 1)]


def test_parts_of_a_heterogeneous_job_are_one_gang(tmp_path: Path):
    trace = trace_of(
        tmp_path,
        HEAD,
        "3+0|alice|ml|2026-11-28T13:50:36|2026-11-28T13:50:36|31|1|cpu=4|COMPLETED",
        "3+1|alice|ml|2026-11-28T13:50:36|2026-11-28T13:50:36|29|2|cpu=2,gres/gpu=8|COMPLETED",
        "4|alice|ml|2026-11-28T13:50:36|2026-11-28T13:50:36|5|1|cpu=2|COMPLETED",
    )
    gang, single = trace.jobs
    assert (gang.name, gang.duration, gang.pods, gang.minimum) == ("3", 31.0, 3, 3)
    assert gang.parts == (Demand(cpus=4.0), Demand(pods=2, gpus=4, cpus=1.0))
    assert (single.name, single.pods) == ("4", 1)


def test_time_for_which_a_job_was_suspended_counts(tmp_path: Path):
    """Slurm counts 12 s of 32, for which the job kept its GPUs."""
    head = "JobID|Submit|Start|End|ElapsedRaw|Suspended|ReqTRES"
    (job,) = trace_of(tmp_path, head, "1|100|100|132|12|00:00:20|gres/gpu=1").jobs
    assert job.duration == 32.0


# --- Times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1795873856",
        "2026-11-28T13:50:56",
        "2026-11-28T13:50:56+0000",
        "2026-11-28T13:50:56+00:00",
        "2026-11-28T13:50:56Z",
        "2026-11-28T13:50:56 UTC",
        "2026-11-28T14:50:56+0100",
        "2026-11-28T08:50:56-05",
    ],
)
def test_times_are_read_with_their_zones(text: str, tmp_path: Path):
    trace = trace_of(tmp_path, "JobID|Submit|ElapsedRaw|ReqTRES", f"31|{text}|21|cpu=1")
    assert trace.began == 1795873856.0


def test_a_time_whose_zone_is_a_name_is_refused(tmp_path: Path):
    with pytest.raises(RefusedError, match='R001 Submit is "2026-11-28T13:50:56 CEST", expected a time such as'):
        trace_of(tmp_path, "JobID|Submit|ElapsedRaw|ReqTRES", "31|2026-11-28T13:50:56 CEST|21|cpu=1")


AUTUMN = (
    "21|alice|ml|2026-11-28T09:42:39|2026-11-28T09:42:39|400|1|gres/gpu=4|COMPLETED",
    "43|alice|ml|2026-11-28T09:43:37|2026-11-28T08:45:18|5|1|gres/gpu=4|COMPLETED",
    "62|alice|ml|2026-11-28T08:45:38|2026-11-28T08:45:38|45|1|gres/gpu=1|COMPLETED",
)


def test_clocks_that_were_set_back_are_told(tmp_path: Path):
    trace = trace_of(tmp_path, HEAD, *AUTUMN)
    (said,) = [note for note in trace.notes if note.startswith("Clocks")]
    assert "the times of 1 row do not fit each other, first in line 3." in said
    assert "SLURM_TIME_FORMAT=%s" in said
    assert "Times that do not say their zone are taken as UTC." in trace.assumptions


def test_clocks_that_were_set_forward_are_told(tmp_path: Path):
    head = "JobID|Submit|Start|End|ElapsedRaw|ReqTRES"
    trace = trace_of(tmp_path, head, "1|2026-03-29T01:50:00|2026-03-29T01:50:00|2026-03-29T03:10:00|1200|cpu=1")
    assert [note[:6] for note in trace.notes if "first in line 2" in note] == ["Clocks"]


def test_times_as_seconds_know_no_change_of_clocks(tmp_path: Path):
    trace = trace_of(tmp_path, HEAD, "43|alice|ml|1795859017|1795855518|5|1|gres/gpu=4|COMPLETED")
    assert not [note for note in trace.notes if note.startswith("Clocks")]


@pytest.mark.parametrize(
    ("elapsed", "seconds"),
    [("0-01:49:44", 6584.0), ("01:49:44", 6584.0), ("49:24", 2964.0), ("2-00:00:01", 172801.0)],
)
def test_elapsed_does_where_elapsedraw_is_missing(elapsed: str, seconds: float, tmp_path: Path):
    head = "JobID|State|Submit|Elapsed|NNodes|ReqTRES"
    (job,) = trace_of(tmp_path, head, f"1|COMPLETED|2026-11-02T05:18:14|{elapsed}|1|gres/gpu=1").jobs
    assert job.duration == seconds


def test_start_and_end_replace_a_missing_duration_column(tmp_path: Path):
    (job,) = trace_of(tmp_path, "JobID|Submit|Start|End|ReqTRES", "1|100|130|190|gres/gpu=1").jobs
    assert job.duration == 60.0


HOUR = 3600
WEEK = (
    f"1|{0}|{HOUR}|{9 * 24 * HOUR}|1|gres/gpu=8|COMPLETED",  # ran since long before, to the second day of the window
    f"2|{7 * 24 * HOUR}|{8 * 24 * HOUR + HOUR}|{HOUR}|1|gres/gpu=8|COMPLETED",  # waited when the window began
    f"3|{8 * 24 * HOUR + 2 * HOUR}|{8 * 24 * HOUR + 2 * HOUR}|{HOUR}|1|gres/gpu=8|COMPLETED",
    f"4|{24 * HOUR}|{24 * HOUR}|{7 * 24 * HOUR - 60}|1|gres/gpu=8|COMPLETED",  # ended before
)
SPANS = "JobID|Submit|Start|ElapsedRaw|NNodes|ReqTRES|State"


def test_since_keeps_what_then_ran_or_waited(tmp_path: Path):
    trace = trace_of(tmp_path, SPANS, *WEEK, since=8.0 * 24 * HOUR)
    found = {job.name: (job.arrival, job.duration) for job in trace.jobs}
    assert found == {"1": (0.0, (24 + 1) * HOUR), "2": (1.0, HOUR), "3": (2.0 * HOUR, HOUR)}
    assert [job.name for job in trace.jobs] == ["1", "2", "3"]
    assert trace.dropped == {"jobs that ended before --since": 1}


def test_a_beginning_with_only_long_jobs_is_noted(tmp_path: Path):
    (said,) = [note for note in trace_of(tmp_path, SPANS, *WEEK[:3]).notes if note.startswith("Nothing")]
    assert said.startswith("Nothing ended in the first 8d2h: sacct -S lists jobs that were there before")
    assert "--since TIME" in said


def test_since_needs_to_know_when_jobs_started(tmp_path: Path):
    with pytest.raises(InputError, match="found no time at which jobs started, expected a column Start for --since"):
        trace_of(tmp_path, "JobID|Submit|ElapsedRaw|ReqTRES", "1|5|60|cpu=1", since=0.0)


# --- Tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "|"])
@pytest.mark.parametrize("name", ["train", "a|b", '"quoted', "x||y", ""])
def test_a_job_name_alone_may_contain_separators(name: str, end: str, tmp_path: Path):
    """``end`` is the separator that sacct -p writes behind each line."""
    head = f"JobID|JobName|User|Account|Submit|ElapsedRaw|ReqTRES|Reason{end}".replace("|Reason", "|State")
    trace = trace_of(
        tmp_path,
        head,
        f"13|{name}|alice|ml|2026-11-28T13:00:00|60|gres/gpu=2|{end}",
        f"14|plain|bob|ops|2026-11-28T13:00:00|60|gres/gpu=1|COMPLETED{end}",
    )
    assert [(job.name, job.user, job.queue) for job in trace.jobs] == [("13", "alice", "ml"), ("14", "bob", "ops")]


@pytest.mark.parametrize("end", ["", "|"])
def test_separators_in_several_free_text_columns_are_refused(end: str, tmp_path: Path):
    head = f"JobID|JobName|Comment|Account|Submit|ElapsedRaw|ReqTRES|State{end}"
    with pytest.raises(RefusedError) as refused:
        trace_of(tmp_path, head, f"13|a|b||ml|2026-11-28T13:00:00|60|gres/gpu=2|COMPLETED{end}")
    said = refused.value.findings[0].message
    assert said.endswith("a separator or a line break in a text shifts them: leave out JobName and Comment")


def test_an_extra_field_is_refused_even_when_empty(tmp_path: Path):
    """Without the name among the columns nothing says where the text came from, and fields must not shift."""
    with pytest.raises(RefusedError, match="found 5 fields, expected 4"):
        trace_of(tmp_path, "JobID|Submit|ElapsedRaw|ReqTRES", "13|2026-11-28T13:00:00|60|gres/gpu=2|")


def test_a_name_with_a_line_break_is_refused(tmp_path: Path):
    with pytest.raises(RefusedError, match="found 2 fields, expected 5, one for each column; a separator or a line"):
        trace_of(tmp_path, "JobID|JobName|Submit|ElapsedRaw|ReqTRES", "14|x", "y|2026-11-28T13:00:00|60|cpu=1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobID           JobName  Partition    Account  AllocCPUS\n", "found columns in fixed places, expected the"),
        (
            "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n",
            "columns Submit, ElapsedRaw or Elapsed or ",
        ),
        (
            "JobID|User|Submit|Start\n",
            "Elapsed or End, AllocTRES or ReqTRES are missing for Slurm",
        ),
        (
            "12|ann|2026-01-05T08:00:00|60|cpu=1\n",
            "found no line with the names of columns, expected the ",
        ),
    ],
)
def test_an_export_that_lacks_columns_leads_to_the_command(text: str, said: str, tmp_path: Path):
    with pytest.raises(RefusedError) as refused:
        trace_of(tmp_path, text)
    first, told = finding_text(refused.value.findings[0]).splitlines()
    assert said in first
    assert told.startswith(f"  help: {COMMAND}")


# --- JSON ----------------------------------------------------------------------------------------------------------


def number(value: int | None, *, is_new: bool) -> Any:
    if not is_new:
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def job_of(
    number_of: int,
    *,
    is_new: bool,
    task: int | None = None,
    het: int | None = None,
    tres: Sequence[tuple[str, str, int]] = (),
    **times: int,
) -> Mapping[str, Any]:
    """Return a job as sacct --json writes it: before 23.02 numbers are plain, and the state is a text."""
    listed = [{"type": kind, "name": name, "id": 1, "count": count} for kind, name, count in tres]
    begun = times.get("start", 0) not in {0, 4294967294}
    state = times.pop("pending", 0)
    word = "PENDING" if state else "COMPLETED" if begun else "CANCELLED"
    return {
        "account": "ml",
        "user": "alice",
        "allocation_nodes": 2 if begun else 0,
        "array": {"job_id": 83 if task is not None else 0, "task_id": number(task, is_new=is_new), "task": None},
        "het": {"job_id": 3 if het is not None else 0, "job_offset": number(het, is_new=is_new)},
        "job_id": number_of,
        "name": "a|b",
        "nodes": "v[2-3]" if begun else "None assigned",
        "state": {"current": [word] if is_new else word, "reason": "None"},
        "steps": [{"tres": {}}],
        "time": {"elapsed": 10, "suspended": 0, "limit": number(None, is_new=is_new), **times},
        "tres": {"allocated": listed if begun else [], "requested": listed},
    }


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("name", ["jobs.json", "jobs.txt", "jobs"])
def test_slurm_json_of_both_versions_reads_like_the_table(name: str, tmp_path: Path, *, is_new: bool):
    gpus = (("cpu", "", 2), ("mem", "", 2000), ("energy", "", -2), ("gres", "gpu", 5), ("gres", "gpu:a100", 5))
    at = {"submission": 1795874099, "eligible": 1795874101, "start": 1795874103, "end": 1795874113}
    never = {"submission": 1795874099, "eligible": 0, "start": 4294967294, "end": 1795874105}
    waits = {"submission": 1795874099, "eligible": 4294967295, "start": 0, "end": 0, "pending": 1}
    jobs = [
        job_of(75, is_new=is_new, tres=gpus, **at),
        job_of(85, is_new=is_new, task=2, tres=gpus[:2], **at),
        job_of(3, is_new=is_new, het=0, tres=gpus[:2], **at),
        job_of(4, is_new=is_new, het=1, tres=gpus[:2], **at),
        job_of(5, is_new=is_new, tres=gpus, **never),
        job_of(8, is_new=is_new, tres=gpus, **waits),
    ]
    path = tmp_path / name
    path.write_text(json.dumps({"meta": {}, "jobs": jobs, "errors": []}), encoding="utf-8")
    trace = read_trace(str(path))
    assert [(job.name, job.pods, job.duration, job.queue, job.user) for job in trace.jobs] == [
        ("75", 2, 10.0, "ml", "alice"),
        ("83_2", 2, 10.0, "ml", "alice"),
        ("3", 4, 10.0, "ml", "alice"),
    ]
    first = Demand(gpus=3, cpus=1.0, memory_mib=1000.0, types=("a100",))
    assert trace.jobs[0].parts == (first, Demand(gpus=2, cpus=1.0, memory_mib=1000.0, types=("a100",)))
    assert (trace.began, trace.dropped) == (1795874101.0, {"jobs that never started there": 2})
    assert trace.notes == ()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"jobs": [{"job_id": 1, "submit_time": 5}]}, "expected those of sacct --json, not of squeue"),
        ({"meta": {}}, "found no list of jobs, expected the output of sacct --json"),
        ({"jobs": []}, "found no job in 0 rows"),
        ({"jobs": [{"time": {"submission": 5}}, 7]}, r"no job in 2 rows \(jobs that never started there: 2\)"),
    ],
)
def test_other_json_is_refused(document: object, said: str, tmp_path: Path):
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_trace(str(path))
