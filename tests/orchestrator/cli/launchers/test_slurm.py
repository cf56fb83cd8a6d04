"""Slurm scripts: valid for a shell, with the requested settings; the file in deploy matches the
code."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.launchers.slurm import (
    DEFAULT_GRACE_SECONDS,
    JobResources,
    Script,
    _render,
    grace_seconds,
    script_for,
)
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.wording import duration
from tests.examples import examples

REPOSITORY = Path(__file__).parents[4]
HOSTILE = """it's $HOME; "x" `y`"""


def settings_of(**workers: Any) -> Settings:
    return from_mapping(
        {"name": "sine", "objective": {"name": "sine"}, "budget": {"evaluations": 5}, "workers": workers}
    )


def script(allocation: JobResources, run: str = "first", **workers: Any) -> Script:
    return script_for(allocation, settings_of(**workers), ["/data/campaign.yaml"], run, Path("/opt/bbkb/bin"))


def general_script() -> str:
    """Return the expected deploy/slurm/bbkb.sbatch: the script for any campaign."""
    cpus = '"${SLURM_CPUS_PER_TASK:-1}"'
    return _render(
        JobResources(nodes=3, cpus=2),
        header="For any campaign: sbatch [options, which override those below] bbkb.sbatch campaign.yaml [options of\n"
        "# `bbkb run`]. BBKB_RUNS names the folder of results, BBKB_RUN the run.",
        job_name="bbkb",
        output="bbkb-%j.out",
        bin_folder="",
        runs='"${BBKB_RUNS:-$PWD/runs}"',
        run='"${BBKB_RUN:-slurm-$SLURM_JOB_ID}"',
        grace=DEFAULT_GRACE_SECONDS,
        arguments='--workers $((SLURM_JOB_NUM_NODES * ${SLURM_CPUS_PER_TASK:-1})) "$@"',
        cpus=cpus,
        head_cpus=cpus,
        others='"$((SLURM_JOB_NUM_NODES - 1))"',
    )


def check_shell(text: str) -> None:
    program = Path(sys.executable).parent / "shellcheck"  # from the extra dev, whether or not it is on the PATH
    checked = subprocess.run([program, "-"], input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_script_in_deploy_matches_the_code_and_is_sound() -> None:
    assert (REPOSITORY / "deploy" / "slurm" / "bbkb.sbatch").read_text() == general_script()
    check_shell(general_script())


def test_slurm_script_contains_the_requested_resources() -> None:
    allocation = JobResources(nodes=8, cpus=16, gpus=2, time="4:00:00", partition="a,b", exclusive=True)
    text = script(allocation, timeout_seconds=600.0, gpus=0.5).text
    for line in (
        "--nodes=8 --ntasks-per-node=1 --cpus-per-task=16",
        "--gpus-per-node=2",
        "--partition=a,b",
        "--exclusive",
    ):
        assert f"#SBATCH {line}\n" in text
    assert "#SBATCH --time=4:00:00\n" in text
    assert "#SBATCH --signal=B:TERM@635\n" in text
    assert "--num-cpus=15 " in text  # one core of the head is the coordinator's
    assert "bbkb run /data/campaign.yaml --workers 32 " in text  # 4 for each node's GPUs
    check_shell(text)


def test_campaign_waits_for_the_nodes_that_one_evaluation_takes_and_for_no_others() -> None:
    job = JobResources(nodes=6, cpus=8)
    text = script(job, machines=4, cpus=2).text
    assert '"$job/workers.log")" -ge 3 ]' in text  # beside the first node
    assert "--workers 5 " in text  # of 23 pairs of cores, four to an evaluation
    check_shell(text)
    assert "has_joined" not in script(job, cpus=2).text


def test_no_core_is_reserved_for_the_coordinator_if_evaluations_need_all() -> None:
    text = script(JobResources(nodes=2, cpus=16), machines=2, cpus=16).text
    assert "--num-cpus=16 " in text
    assert "--workers 1 " in text


@pytest.mark.parametrize("gpus", [0, 1])
def test_slurm_script_with_a_container_runs_all_commands_inside(gpus: int) -> None:
    text = script(JobResources(cpus=2, gpus=gpus, container="/images/my bbkb.sif")).text
    assert "--bind \"$tmp\" '/images/my bbkb.sif')" in text
    assert ("--nv" in text) == bool(gpus)
    assert "/opt/bbkb/bin" not in text
    check_shell(text)


@settings(max_examples=examples(30))
@given(run=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20))
def test_slurm_names_are_single_words(run: str) -> None:
    text = script(JobResources(), run=run).text
    (line,) = [line for line in text.splitlines() if line.startswith("run=")]
    read = subprocess.run(["bash", "-c", f'{line}\nprintf %s "$run"'], capture_output=True, check=True)
    assert read.stdout.decode() == run


def test_campaign_file_with_a_hostile_name_is_one_argument() -> None:
    text = script_for(JobResources(), settings_of(), [HOSTILE], "first", Path("/bin")).text
    words = text.partition("bbkb run ")[2].partition(" --workers")[0]
    assert (
        subprocess.run(["bash", "-c", f"printf %s {words}"], capture_output=True, text=True, check=True).stdout
        == HOSTILE
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 0}, "--nodes must be >= 1, got 0"),
        ({"gpus": -1}, "--gpus must be >= 0"),
        ({"time": "4 hours"}, "--time must be minutes .* got '4 hours'"),
        ({"time": "4h"}, "--time must be minutes"),
        ({"time": "1-"}, "--time must be minutes"),
        ({"time": "1:60"}, "--time must be minutes"),
        ({"time": "0"}, "--time must be more than 3 min 0 s: Slurm's notice comes 120 s before the end"),
        ({"time": "3"}, "--time must be more than 3 min 0 s: .* got 3 "),
        ({"partition": "a b"}, "--partition must be"),
        ({"cpus": 2}, "--cpus must be >= workers.cpus = 4"),
    ],
)
def test_slurm_options_that_slurm_would_reject_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        script(JobResources(**{"cpus": 4, **change}), cpus=4.0)


def test_campaign_that_does_not_run_on_ray_is_rejected() -> None:
    with pytest.raises(UserError, match=r"workers\.executor must be ray .* got inline"):
        script(JobResources(), executor="inline")


@settings(max_examples=examples(30))
@given(seconds=st.floats(0.1, 1e6))
def test_longest_evaluation_ends_within_the_grace_that_slurm_allows(seconds: float) -> None:
    grace = grace_seconds(seconds)
    assert 60 <= grace <= 65535
    assert grace >= seconds + 30 or grace == 65535


def test_slurm_settings_name_their_sources() -> None:
    reasons = {setting.name: setting.reason for setting in script(JobResources(nodes=3, cpus=4)).settings}
    assert reasons["workers.count"] == "3 nodes, 1 CPU an evaluation; one core of the first node is the coordinator's"
    assert "no workers.timeout_seconds" in reasons["--signal"]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("4:00", 240),
        ("4:00:00", 14400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-00:00:01", 86401),
        ("200:00:00", 720000),
    ],
)
def test_time_limit_is_read_as_slurm_reads_it_and_shown_in_words(time: str, seconds: int) -> None:
    allocation = JobResources(time=time)
    assert allocation.seconds == seconds
    shown = {setting.name: setting for setting in script(allocation, timeout_seconds=1.0).settings}["--time"]
    assert (shown.value, shown.reason) == (duration(seconds), f"{time}, as Slurm reads it")


def run_checks(text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script up to the creation of its token, before anything of Slurm or Ray is started."""
    checks = text.partition("umask 077\n")[0]
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "PATH": "/usr/bin:/bin", **environment}
    command = ["bash", "-c", f"{checks} echo begun", "bbkb.sbatch", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_script_for_any_campaign_names_missing_parts_before_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    no_file = run_checks(general_script(), str(file))
    assert (no_file.returncode, no_file.stdout.rpartition(" got ")[2]) == (2, f"'{file}'\n")
    file.touch()
    no_bbkb = run_checks(general_script(), str(file))
    assert no_bbkb.returncode == 2
    assert "bbkb and ray must be on the PATH of the nodes" in no_bbkb.stdout
    for name in ("bbkb", "ray"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert run_checks(general_script(), str(file), PATH=f"{tmp_path}:/usr/bin:/bin").stdout == "begun\n"
