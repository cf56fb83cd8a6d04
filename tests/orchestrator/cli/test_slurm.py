"""Launchers: written scripts, and those for Slurm."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.commands import launchers
from bbkb.orchestrator.cli.commands.launchers import command_for
from bbkb.orchestrator.cli.launchers.kubernetes import Pods, reasons, workers_on
from bbkb.orchestrator.cli.launchers.slurm import (
    DEFAULT_GRACE_SECONDS,
    JobResources,
    Script,
    _render,
    grace_seconds,
    script_for,
)
from bbkb.orchestrator.cli.launchers.writing import least_nodes, places_of
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.wording import duration
from tests.examples import examples
from tests.orchestrator import runs

REPOSITORY = Path(__file__).parents[3]
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


NODE = {"CPU": 4.0, "GPU": 2.0}


def settings_with(**workers: object) -> Settings:
    space = {
        "nodes": {"choices": [1, 3, 2]},
        "gpus": {"low": 0, "high": 4, "integer": True},
        "x": {"low": 0, "high": 1},
    }
    objective = {"callable": "train.py:train", "direction": "maximize"}
    return from_mapping(
        {"name": "n", "objective": objective, "space": space, "budget": {"evaluations": 4}, "workers": workers}
    )


@pytest.mark.parametrize(
    ("workers", "count", "places"),
    [
        ({"gpus": 0.6}, 3, 6),  # a share of a graphics processor counts on each one
        ({"machines": 2, "cpus": 3}, 5, 2),
        ({"machines": 3, "cpus": 2, "spread": "soft"}, 2, 1),
        ({"machines": 8, "cpus": 1, "ray_train": True}, 4, 2),  # workers of a trainer may share a node
    ],
)
def test_evaluations_that_fit_on_the_nodes_are_counted(workers: dict[str, Any], count: int, places: int) -> None:
    settings = settings_with(**workers)
    assert places_of(settings, [NODE] * count, "nodes") == places
    assert workers_on(Pods(image="i", pods=count, cpus=4, gpus=2), settings) == places


def test_too_few_nodes_for_one_evaluation_are_rejected() -> None:
    with pytest.raises(UserError, match=r"--pods must be enough for one evaluation, which takes 3 machines .* got 2"):
        workers_on(Pods(image="i", pods=2, cpus=4), settings_with(machines=3))
    with pytest.raises(UserError, match=r"--nodes must be enough for one evaluation, which takes 3 machines .* got 2"):
        script_for(JobResources(nodes=2, cpus=4), settings_with(machines=3), ["c.yaml"], "first", Path("/bin"))


def test_largest_trial_must_fit_if_a_parameter_gives_its_resources() -> None:
    with pytest.raises(UserError, match=r"--gpus must be >= the largest workers\.gpus_from, 4, which .* got 2"):
        workers_on(Pods(image="i", cpus=4, gpus=2), settings_with(gpus_from="gpus"))


def test_largest_trial_is_displayed_as_the_most_that_one_takes() -> None:
    sized = settings_with(machines=3, gpus_from="gpus")
    script = script_for(JobResources(nodes=3, cpus=4, gpus=4), sized, ["c.yaml"], "first", Path("/bin"))
    (count,) = [setting for setting in script.settings if setting.name == "workers.count"]
    assert "3 nodes, at most 1 CPU and 4 GPUs on each of 3 machines an evaluation" in count.reason


@pytest.mark.parametrize(("workers", "ending"), [({}, "2 pods of 4 CPUs"), ({"count": 3}, "replaces the campaign's 3")])
def test_replaced_count_of_workers_is_displayed(workers: dict[str, int], ending: str) -> None:
    (count, *_) = reasons(Pods(image="i", pods=2, cpus=4), settings_with(**workers), "first")
    assert (count.value, count.reason.endswith(ending)) == ("8", True)


def test_nodes_that_one_evaluation_needs_are_counted() -> None:
    assert least_nodes(settings_with(), [NODE] * 3) == 1
    assert least_nodes(settings_with(machines=2, cpus=3), [NODE] * 3) == 2
    assert least_nodes(settings_with(machines=3), [NODE] * 4) == 3
    assert least_nodes(settings_with(machines=2, cpus=4), [{"CPU": 3.0}, *[NODE] * 3]) == 3
    assert least_nodes(settings_with(machines=8, cpus=1, ray_train=True), [NODE] * 3) == 2


def job_settings(runs: str) -> Settings:
    campaign = {
        "name": "sine",
        "objective": {"name": "sine"},
        "budget": {"evaluations": 5},
        "workers": {"timeout_seconds": 600.0},
        "runs": runs,
    }
    return from_mapping(campaign)


def test_command_uploads_the_campaigns_folder_and_is_safe_to_repeat(tmp_path: Path) -> None:
    settings = job_settings("/shared/runs")
    command = command_for(settings, tmp_path / "c.yaml", ["seed=3"], "first", None, "http://head:8265")
    options, _, entrypoint = " ".join(command).partition(" -- ")
    assert f"--working-dir {tmp_path}" in options
    assert entrypoint == "bbkb run c.yaml --set seed=3 --set runs=/shared/runs --run first --or-resume"
    assert json.loads(command[command.index("--metadata-json") + 1]) == {"job_name": "first"}
    environment = json.loads(command[command.index("--runtime-env-json") + 1])
    assert environment == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "635"}}
    assert {setting.name for setting in launchers.reasons(settings, "first")} >= {
        "job_name",
        "RAY_JOB_STOP_WAIT_TIME_S",
    }


@pytest.mark.parametrize("runs", ["relative/runs", "{folder}/runs"])
def test_results_folder_inside_the_uploaded_folder_is_rejected(tmp_path: Path, runs: str) -> None:
    results = Path(runs.format(folder=tmp_path))
    with pytest.raises(UserError, match="--runs must be an absolute path on the cluster and outside"):
        command_for(job_settings("/shared/runs"), tmp_path / "c.yaml", [], "first", results, "http://head:8265")


CAMPAIGN = """
name: sine
objective: {name: sine}
budget: {evaluations: 5}
workers: {timeout_seconds: 60}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    return tmp_path


def bbkb(*arguments: str) -> str:
    """Return the command's output, without wrapped lines. Raises the command's errors."""
    return " ".join(runs.bbkb("launch", *arguments).output.split())


def test_launch_slurm_writes_a_script_and_explains_its_settings(folder: Path) -> None:
    text = bbkb("slurm", "campaign.yaml", "--nodes", "3", "--cpus", "2", "--run", "first", "--set", "seed=4")
    script = folder / "first.sbatch"
    assert f"to start it: sbatch {script}" in text
    assert "workers.count 6 3 nodes, 1 CPU an evaluation" in text
    assert f"bbkb run {folder / 'campaign.yaml'} --set seed=4 --workers 6 " in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_launch_slurm_without_slurm_is_a_mistake_of_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(UserError, match="--submit needs the command sbatch"):
        bbkb("slurm", "campaign.yaml", "--submit")


def test_launch_shows_the_error_of_the_clusters_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sbatch").write_text("#!/bin/sh\necho 'invalid partition' >&2; exit 1\n")
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with pytest.raises(UserError, match="sbatch rejected the job: invalid partition"):
        bbkb("slurm", "campaign.yaml", "--submit")


def test_job_is_submitted_again_while_rays_agent_is_starting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = "echo 'RuntimeError: No available agent to submit job, please try again later.' >&2; exit 1"
    (folder / "ray").write_text(
        f"#!/bin/sh\n[ -e tried ] && printf '\\033[1maccepted\\033[22m' && exit 0\ntouch tried; {refuse}\n"
    )
    (folder / "ray").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    command = ["ray-job", "campaign.yaml", "--runs", "/elsewhere", "--submit"]
    assert bbkb(*command).endswith("accepted")
    (folder / "ray").write_text(f"#!/bin/sh\necho try >>tries; {refuse}\n")
    with pytest.raises(UserError, match="No available agent"):
        bbkb(*command)
    assert (folder / "tries").read_text().count("try") == 6


def test_launch_shows_the_last_line_of_a_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traceback = r"Traceback (most recent call last):\n  File x\n\033[31mConnectionError: no cluster there\033[39m\n"
    (folder / "ray").write_text(f"#!/bin/sh\nprintf '{traceback}' >&2; exit 1\n")
    (folder / "ray").chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))  # its folder is not in PATH
    with pytest.raises(UserError, match=r"ray rejected the job: ConnectionError: no cluster there$"):
        bbkb("ray-job", "campaign.yaml", "--runs", "/shared/runs", "--submit")


def test_image_is_named_so_that_nodes_find_it(folder: Path) -> None:
    with pytest.raises(UserError, match=f"--container must be an image that every node sees.* got {folder}/bbkb.sif"):
        bbkb("slurm", "campaign.yaml", "--container", "bbkb.sif")
    (folder / "bbkb.sif").touch()
    for image, written in (("bbkb.sif", f"{folder}/bbkb.sif"), ("docker://example/bbkb:1", "docker://example/bbkb:1")):
        bbkb("slurm", "campaign.yaml", "--container", image)
        assert f'--bind "$tmp" {written})' in (folder / "sine.sbatch").read_text()


def test_path_with_a_space_is_one_word_of_the_command_that_is_shown(folder: Path) -> None:
    (folder / "my folder").mkdir()
    text = bbkb("slurm", "campaign.yaml", "--output", "my folder/a.sbatch")
    assert f"to start it: sbatch '{folder}/my folder/a.sbatch'" in text


def test_ray_job_is_printed_with_a_prompt_for_the_token(folder: Path) -> None:
    text = bbkb("ray-job", "campaign.yaml", "--runs", "/shared/runs")
    assert "RAY_AUTH_MODE=token ray job submit --address http://127.0.0.1:8265" in text
    assert "--set runs=/shared/runs --run sine --or-resume" in text


def test_manifests_hold_a_token_that_only_the_user_can_read_and_that_is_not_printed(folder: Path) -> None:
    text = bbkb("kuberay", "campaign.yaml", "--image", "registry.example/bbkb:1", "--run", "first")
    file = folder / "first.kuberay.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    secret = next(document for document in yaml.safe_load_all(file.read_text()) if document["kind"] == "Secret")
    assert len(secret["stringData"]["auth_token"]) == 64
    assert secret["stringData"]["auth_token"] not in text


def test_invalid_name_is_rejected(folder: Path) -> None:
    with pytest.raises(UserError, match="run"):
        bbkb("slurm", "campaign.yaml", "--run", "../elsewhere")
