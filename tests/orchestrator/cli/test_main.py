"""The commands on small campaigns: run, resume, interrupts, plan and summary."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from bbkb import Campaign
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.cli.main import app, load
from bbkb.orchestrator.cli.plan import first_arms, warnings
from bbkb.orchestrator.cli.summary import summarize
from bbkb.orchestrator.errors import BbkbError, ConfigError, RunError, StoreError
from bbkb.orchestrator.history.facts import as_plain
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.terminal import SafeConsole
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.known_results import existing
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.settings.schema import schema
from bbkb.orchestrator.store.runs import Run, open_run
from tests.executors import HERE
from tests.orchestrator import runs
from tests.orchestrator.synthetic_log import SyntheticLog

REPOSITORY = Path(__file__).parents[3]
Bbkb = Callable[..., subprocess.CompletedProcess[str]]

CAMPAIGN = """
name: sine
objective: {name: sine}
candidates: {size: 200}
strategy: {name: bbkb, kernel: {name: rbf, lengthscale: 0.1}, regularization: 0.1, noise_variance: 0.01}
budget: {evaluations: 25}
workers: {executor: inline, count: 2}
"""


@pytest.fixture(scope="module")
def finished_campaign(bbkb: Bbkb, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a campaign file and one run of it that has ended."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    done = bbkb(folder, "run", "campaign.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "best value" in done.stdout
    return folder


def run_of(folder: Path) -> Path:
    return next(folder.glob("runs/*")).relative_to(folder)


def test_run_writes_campaign_file_log_provenance_and_report(finished_campaign: Path) -> None:
    run = finished_campaign / run_of(finished_campaign)
    assert {file.name for file in run.iterdir()} >= {
        "campaign.yaml", "campaign.sqlite", "provenance.json", "report.html", "run.log",
    }  # fmt: skip
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["seed"] == 0
    assert provenance["versions"]["numpy"]
    assert "git_commit" in provenance
    assert "sine" in (run / "report.html").read_text()


@pytest.mark.parametrize("executor", HERE)  # Ray: tests of the cluster, of chaos and below
def test_campaign_file_runs_on_every_executor(bbkb: Bbkb, tmp_path: Path, executor: str) -> None:
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    done = bbkb(tmp_path, "run", "campaign.yaml", "--set", f"workers.executor={executor}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished: budget spent" in done.stdout
    assert done.stderr == ""
    rows = json.loads(bbkb(tmp_path, "export", str(run_of(tmp_path)), "--format", "json").stdout)
    assert [row["trial"] for row in rows] == list(range(25))
    assert all(row["status"] == "succeeded" for row in rows)


def test_run_log_has_a_line_for_each_evaluation(finished_campaign: Path) -> None:
    lines = (finished_campaign / run_of(finished_campaign) / "run.log").read_text().splitlines()
    trials = {line.split(" trial=")[1].split()[0] for line in lines if ": succeeded after" in line}
    assert trials == {str(trial) for trial in range(25)}
    assert "session closed, finished: budget spent" in lines[-1]


def test_resume_of_a_finished_campaign_changes_nothing(bbkb: Bbkb, finished_campaign: Path) -> None:
    before = bbkb(finished_campaign, "export", str(run_of(finished_campaign))).stdout
    done = bbkb(finished_campaign, "resume", str(run_of(finished_campaign)))
    assert done.returncode == 0
    assert "has finished: budget spent" in done.stdout
    assert bbkb(finished_campaign, "export", str(run_of(finished_campaign))).stdout == before


def test_summary_is_printed_if_the_report_cannot_be_written(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    bbkb(tmp_path, "run", "campaign.yaml", "--set", "budget.evaluations=3")
    report = run_of(tmp_path) / "report.html"
    (tmp_path / report).unlink()
    (tmp_path / report).mkdir()
    done = bbkb(tmp_path, "resume", str(report.parent), "--set", "budget.evaluations=4")
    assert (done.returncode, done.stderr) == (0, "")
    assert "finished: budget spent" in done.stdout
    assert f"{report} cannot be written: " in " ".join(done.stdout.split())


def test_resume_rejects_a_changed_file_and_names_the_keys(bbkb: Bbkb, finished_campaign: Path) -> None:
    changes = ("--set", "strategy.ratio_threshold=5", "--set", "seed=3")
    done = bbkb(finished_campaign, "resume", str(run_of(finished_campaign)), *changes)
    assert done.returncode == 2
    assert "strategy.ratio_threshold:" in done.stderr
    assert "seed: 0 became 3" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("objective", ["callable: 'train.py:f'", "command: 'test {x} && cat value'"])
def test_run_resumes_with_its_code_in_another_folder(bbkb: Bbkb, tmp_path: Path, objective: str) -> None:
    for folder, value in (("first", 1), ("second", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(f"def f(x): return {value}\n")
        (tmp_path / folder / "value").write_text(f"{value}\n")
        (tmp_path / folder / "campaign.yaml").write_text(
            f"name: moved\nobjective: {{{objective}, direction: maximize}}\nspace: {{x: {{low: 0, high: 1}}}}\n"
            f"budget: {{evaluations: {value}}}\nworkers: {{executor: inline}}\nruns: {tmp_path / 'runs'}\n"
        )
        done = bbkb(tmp_path / folder, "run", "campaign.yaml", "--run", "moved", "--or-resume")
        assert done.returncode == 0, done.stderr
        assert f"best value      {value}," in done.stdout


def test_resume_rejects_other_data(bbkb: Bbkb, tmp_path: Path) -> None:
    rows = [f"{x / 50},{1 - (x / 50 - 0.3) ** 2}" for x in range(50)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    sine = "{name: sine}\ncandidates: {size: 200}"
    table = "{direction: maximize}\ncandidates: {table: table.csv, target: y}"
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN.replace(sine, table))
    done = bbkb(tmp_path, "run", "campaign.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "table.csv").write_text("\n".join(["x,y", *rows[1:]]) + "\n")
    done = bbkb(tmp_path, "resume", str(run_of(tmp_path)), "--set", "budget.evaluations=40")
    assert done.returncode == 2
    assert "differ from those at its start" in done.stderr


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ("strategy: {name: bbkb, ratio_treshold: 2}", ["campaign.yaml:2: strategy.ratio_treshold", "ratio_threshold"]),
        ("objective: {callable: 'no_such_module:f', direction: maximize}", ["no_such_module"]),
        ("objective: {command: 'echo {nonsense}', direction: maximize}", ["nonsense"]),
        (
            "known_results: [{table: gone.csv}]",
            ["campaign.yaml:2: known_results.0: ", "gone.csv cannot be read as a CSV table: No such file"],
        ),
        ("store: sqlite:////nowhere/at/all.sqlite", ["does the folder exist"]),
    ],
)
def test_mistake_of_the_user_is_shown_without_traceback(
    bbkb: Bbkb, tmp_path: Path, change: str, messages: list[str]
) -> None:
    key = change.partition(":")[0]
    other_lines = [line for line in CAMPAIGN.splitlines() if not line.startswith(f"{key}:")]
    space = ["space: {x: {low: 0, high: 1}}"] if key == "objective" else []
    (tmp_path / "campaign.yaml").write_text("\n".join([other_lines[0], change, *space, *other_lines[1:]]))
    done = bbkb(tmp_path, "run", "campaign.yaml")
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    for message in messages:
        assert message in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["resume", "nothing"], ["status", "."], ["report", "."], ["export", "."], ["run", "none.yaml"], ["walk"]],
)
def test_missing_file_or_run_is_a_mistake_of_the_user(bbkb: Bbkb, tmp_path: Path, arguments: list[str]) -> None:
    done = bbkb(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_validate_describes_the_campaign(bbkb: Bbkb, finished_campaign: Path) -> None:
    done = bbkb(finished_campaign, "validate", "campaign.yaml", "--set", "budget.evaluations=7")
    assert done.returncode == 0
    assert "is valid: 200 candidates in 1 dimension, strategy bbkb, 7 evaluations" in done.stdout


def test_campaign_with_only_failures_exits_with_1_and_names_the_cause(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def f(x):\n    raise OSError('the disk is on fire')\n")
    (tmp_path / "campaign.yaml").write_text(
        CAMPAIGN.replace("{name: sine}", "{callable: 'failing:f', direction: maximize}\nspace: {x: {low: 0, high: 1}}")
    )
    done = bbkb(tmp_path, "run", "campaign.yaml", "--set", "workers.retries=0")
    assert done.returncode == 1
    assert "the disk is on fire" in done.stdout
    assert "--retry-failed" in done.stdout
    assert done.stdout.count("trial 0 failed (error): OSError: the disk is on fire") == 1  # when it happened
    assert "Traceback" not in done.stderr
    rows = bbkb(tmp_path, "export", str(run_of(tmp_path))).stdout
    assert "OSError: the disk is on fire" in rows
    quiet = bbkb(tmp_path, "run", "campaign.yaml", "--set", "workers.retries=0", "--quiet", "--run", "quiet")
    assert (quiet.returncode, quiet.stdout) == (1, "")
    assert "bbkb: quiet failed: all " in quiet.stderr
    assert "the disk is on fire" in quiet.stderr


def test_interrupt_during_the_imports_is_one_line() -> None:
    script = """
import sys, bbkb
class Interrupt:
    def find_spec(self, name, *_):
        if name == "bbkb.orchestrator.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
bbkb.main()
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "bbkb: interrupted\n")


def interrupt(
    folder: Path, executor: str, seconds: float, until: tuple[str, int], times: int, ignored: str = "PIPE"
) -> str:
    """Run a long campaign whose evaluations last `seconds`, interrupt it when a status field is
    positive, and return its output.

    The signals `ignored`, in the words of a shell, are ignored when the command starts.
    """
    (folder / "slow.py").write_text(f"import time\ndef f(x):\n    time.sleep({seconds})\n    return x\n")
    (folder / "campaign.yaml").write_text(
        CAMPAIGN.replace(
            "{name: sine}", "{callable: 'slow:f', direction: maximize}\nspace: {x: {low: 0, high: 1}}"
        ).replace("25", "100000")
    )
    command = subprocess.Popen(
        [
            *("sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh"),
            *(sys.executable, "-m", "bbkb", "run", "campaign.yaml", "--set", f"workers.executor={executor}"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    field, least = until
    deadline = time.monotonic() + 200
    try:
        while not (list(folder.glob("runs/*")) and _field(folder, field) >= least):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for _ in range(times):
            command.send_signal(signal.SIGINT)
            while _has_pending_signals(command.pid):  # two that wait together would count as one
                time.sleep(0.01)
            time.sleep(0.5)
        output, _ = command.communicate(timeout=240)
    finally:
        command.kill()
        command.communicate()
    assert command.returncode == 130, output
    assert "Traceback" not in output
    return output


@pytest.mark.parametrize("executor", ["inline", pytest.param("ray", marks=pytest.mark.thorough)])
def test_interrupt_stops_cleanly_and_a_resume_continues(bbkb: Bbkb, tmp_path: Path, executor: str) -> None:
    assert "bbkb resume" in interrupt(tmp_path, executor, seconds=0.2, until=("succeeded", 3), times=1)
    status = json.loads(bbkb(tmp_path, "status", str(run_of(tmp_path)), "--json").stdout)
    assert status["outcome"] == "interrupted"
    assert status["in_flight"] == 0
    assert status["succeeded"] >= 3
    budget = f"budget.evaluations={status['succeeded'] + 2}"
    done = bbkb(tmp_path, "resume", str(run_of(tmp_path)), "--set", "workers.executor=inline", "--set", budget)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("executor", ["inline", pytest.param("ray", marks=pytest.mark.slow)])
def test_second_interrupt_cancels_running_evaluations(bbkb: Bbkb, tmp_path: Path, executor: str) -> None:
    assert "were cancelled" in interrupt(tmp_path, executor, seconds=600, until=("in_flight", 1), times=2)
    status = json.loads(bbkb(tmp_path, "status", str(run_of(tmp_path)), "--json").stdout)
    assert (status["outcome"], status["succeeded"]) == ("interrupted", 0)


@pytest.mark.thorough
def test_run_in_the_background_of_a_script_is_stopped_cleanly_by_sigint(tmp_path: Path) -> None:
    text = interrupt(tmp_path, "inline", seconds=0.2, until=("succeeded", 1), times=1, ignored="INT HUP")
    assert "bbkb resume" in text


def _has_pending_signals(pid: int) -> bool:
    """Whether the kernel has not delivered a signal to the process yet."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return False
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))


def _field(folder: Path, name: str) -> int:
    """Return a field of the run's status; 0 until the run exists."""
    try:
        events = open_run(folder / run_of(folder)).events()
    except BbkbError:
        return 0
    status = status_of(functools.reduce(apply, events, CampaignState()))
    return int(str(as_plain(status)[name]))


def test_schema_prints_the_schema_of_campaign_files(bbkb: Bbkb, tmp_path: Path) -> None:
    assert json.loads(bbkb(tmp_path, "schema").stdout) == schema()


def test_rows_that_are_one_candidate_are_named_before_the_run(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,4\n1,3\n")
    (tmp_path / "c.yaml").write_text(
        "name: t\nobjective: {direction: maximize}\ncandidates: {table: t.csv, target: y}\nbudget: {evaluations: 3}\n"
    )
    done = bbkb(tmp_path, "validate", "c.yaml")
    assert "the first: row 3 repeats row 1" in " ".join((done.stdout + done.stderr).split())


def test_strategies_lists_each_on_a_line(bbkb: Bbkb, tmp_path: Path) -> None:
    *listed, _ = bbkb(tmp_path, "strategies").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(STRATEGIES)
    assert max(map(len, listed)) < 150


def test_strategies_explains_the_options_of_one(bbkb: Bbkb, tmp_path: Path) -> None:
    explained = bbkb(tmp_path, "strategies", "bkb").stdout
    assert "    oversampling=2.0  q̄, the oversampling of the dictionary, ≥ 1" in explained
    assert "gp_ucb" not in explained
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from bbkb.strategy import ModelFree\n"
        "@dataclass(frozen=True)\n"
        "class Mine(ModelFree):\n"
        "    'Mine.'\n"
        "    step: float = 0.1\n"
        "    def init(self): ...\n"
        "    def ask(self): ...\n"
    )
    assert bbkb(tmp_path, "strategies", "mine:Mine").stdout == "mine:Mine  Mine.\n    step=0.1\n"


def test_validate_names_the_line_of_a_store_whose_variable_is_not_set(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "campaign.yaml").write_text(f"{CAMPAIGN}store: postgresql://me:${{BBKB_TEST_UNSET}}@localhost/x\n")
    done = bbkb(tmp_path, "validate", "campaign.yaml")
    line = len(CAMPAIGN.splitlines()) + 1
    assert done.returncode == 2
    assert f"campaign.yaml:{line}: store: postgresql://me:${{BBKB_TEST_UNSET}}@localhost/x needs the env" in done.stderr


KNOWN = f"{CAMPAIGN}known_results: [{{table: known.csv}}]\n"


def test_campaign_starts_with_existing_data_and_continues_without_their_file(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "campaign.yaml").write_text(KNOWN)
    (tmp_path / "known.csv").write_text("arm,reward,note\n3,0.5,\n150,0.75,good\n150,0.7,\n200,1,no such arm\n")
    for command in ("validate", "run"):
        done = bbkb(tmp_path, command, "campaign.yaml", "--set", "workers.executor=simulated")
        assert done.returncode == 0, done.stdout + done.stderr
    run = str(run_of(tmp_path))
    (tmp_path / "known.csv").unlink()
    done = bbkb(tmp_path, "resume", run, "--set", "budget.evaluations=28", "--workers", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "budget.evaluations: 25 becomes 28" in done.stdout
    status = json.loads(bbkb(tmp_path, "status", run, "--json").stdout)
    assert (status["succeeded"], status["existing"], status["existing_unmatched"]) == (28, 3, 1)
    assert "1 more are not learned" in bbkb(tmp_path, "status", run).stdout
    assert bbkb(tmp_path, "export", run, "--existing").stdout.split() == ["arm,reward", "3,0.5", "150,0.75", "150,0.7"]


READ_ONLY = """
import sys
from typer.testing import CliRunner
from bbkb.orchestrator.cli.main import app

def loaded(*arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return sorted({"ray", "scipy", "sklearn", "pandas", "plotly"} & set(sys.modules))

run = sys.argv[1]
for arguments in (["--version"], ["--help"]):
    assert loaded(*arguments) == [], arguments
    assert {"numpy", "sqlalchemy", "pydantic"}.isdisjoint(sys.modules)
for arguments in (["list", "runs"], ["status", run], ["best", run]):
    assert loaded(*arguments) == [], arguments
    assert "numpy" not in sys.modules, arguments
for command in ("export", "verify", "stop --help"):
    name, *flags = command.split()
    assert loaded(name, *flags, *([] if flags else [run])) == [], command
for executor in ("inline", "ray"):
    chosen = "--set", f"workers.executor={executor}"
    assert {"ray", "sklearn", "pandas"}.isdisjoint(loaded("validate", "campaign.yaml", *chosen)), executor
"""


def test_commands_import_only_necessary_modules(finished_campaign: Path) -> None:
    script = [sys.executable, "-c", READ_ONLY, str(run_of(finished_campaign))]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(script, cwd=finished_campaign, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_lists_the_summary_of_each_command() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name, listed in group.commands.items():
        assert listed.help == " ".join(load(name).help.split("\n\n")[0].split()), name


def summary_of(history: History, waited_seconds: float) -> str:
    console = SafeConsole(file=io.StringIO(), width=200)
    run = Run(Path("runs/demo"), "sqlite://", "demo")
    summarize(console, run, history, "finished", "budget spent", waited_seconds)
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # of a StringIO


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_summary_names_inline_if_ray_takes_longer_than_all_evaluations(factor: float) -> None:
    history = SyntheticLog(sessions=1).history()
    evaluated = sum(row.seconds or 0.0 for row in history.trials)
    text = summary_of(history, factor * evaluated)
    assert ("workers: {executor: inline}" in text) is (factor > 1)


@pytest.mark.parametrize("key", ["gpus", "memory_gb"])
def test_summary_does_not_name_inline_if_evaluations_need_ray(key: str) -> None:
    history = SyntheticLog(sessions=1).history()
    workers = replace(history.settings.workers, **cast(Any, {key: 1.0}))
    history.campaign = replace(history.campaign, settings=replace(history.settings, workers=workers))
    assert "inline" not in summary_of(history, 1e9)


def campaign(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": "planned",
        "objective": {"name": "branin", "direction": "minimize"},
        "budget": {"evaluations": 8, "hours": 1.5},
        "workers": {"count": 4, "executor": "simulated"},
        "enqueue": [{"x": 0.0, "y": 0.5}],
        "runs": str(tmp_path / "runs"),
        **changes,
    }


def dry_run(tmp_path: Path, tree: dict[str, Any], *arguments: str) -> str:
    file = tmp_path / "planned.yaml"
    file.write_text(yaml.safe_dump(tree))
    return runs.bbkb("run", file, "--dry-run", *arguments, columns=80).output


@pytest.mark.parametrize("strategy", ["bbkb", "uniform", "gp_bucb"])
def test_plan_shows_the_first_evaluations_of_the_run(tmp_path: Path, strategy: str) -> None:
    settings = from_mapping(campaign(tmp_path, strategy={"name": strategy}))
    parts = build(settings)
    planned = first_arms(settings, parts, existing(settings, parts.problem))
    created = Campaign.__new__(Campaign)
    created.settings = settings
    trials = runs.history_of(created.run(progress=False)).trials
    assert len(planned) == 4
    assert planned == [row.arm for row in trials[:4]]


def test_dry_run_shows_budget_workers_and_store_and_writes_nothing(tmp_path: Path) -> None:
    rules = {"no_gain_of": 0.001, "in": 64, "expected_gain_below": "noise"}
    text = dry_run(tmp_path, campaign(tmp_path, budget={"evaluations": 8, "hours": 1.5, "stop_when": rules}))
    ends = "8 evaluations or 1 h 30 min or no gain of 0.001 in 64 evaluations or an expected gain below noise"
    for part in (ends, "4 (simulated)", "sqlite", "x=0, y=0.5", "nothing was written"):
        assert part in text
    assert [path.name for path in tmp_path.iterdir()] == ["planned.yaml"]


def test_dry_run_of_an_existing_run_describes_its_resume(tmp_path: Path) -> None:
    tree = campaign(tmp_path, run="one")
    planned = Campaign.__new__(Campaign)
    planned.settings = from_mapping(tree)
    planned.run(progress=False)
    before = (tmp_path / "runs" / "one" / "campaign.sqlite").read_bytes()
    text = dry_run(tmp_path, tree, "--or-resume", "--set", "budget.evaluations=20")
    assert "8 of 20 done" in text
    assert "budget.evaluations: 8 becomes 20" in text
    assert (tmp_path / "runs" / "one" / "campaign.sqlite").read_bytes() == before


def test_dry_run_checks_file_folder_and_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workers\.count"):
        dry_run(tmp_path, campaign(tmp_path, workers={"count": 0}))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        dry_run(tmp_path, campaign(tmp_path, runs=str(tmp_path / "file" / "runs")))
    with pytest.raises(StoreError, match="does the folder exist"):
        dry_run(tmp_path, campaign(tmp_path, store=f"sqlite:///{tmp_path}/none/x.sqlite"))


def warnings_of(**sections: Any) -> str:
    settings = from_mapping({"name": "c", "objective": {"name": "branin"}, "budget": {"evaluations": 5}, **sections})
    return "\n".join(warnings(settings, build(settings)))


@pytest.mark.parametrize("name", ["gp_ucb", "bkb", "igp_ucb", "expected_improvement"])
def test_plan_warns_about_idle_workers_of_a_sequential_strategy(name: str) -> None:
    messages = warnings_of(strategy={"name": name}, workers={"count": 4, "executor": "simulated"})
    assert f"the strategy {name} waits for each result" in messages
    assert "one of the 4 workers has work" in messages


def test_plan_warns_about_a_parameter_that_the_command_lacks() -> None:
    space = {"lr": {"low": 0, "high": 1}, "depth": {"low": 1, "high": 8, "integer": True}, "data": {"constant": "d"}}
    for command, unused in (("true {lr}", "{depth}"), ("true {lr} $BBKB_PARAMETERS", ""), ("true", "")):
        messages = warnings_of(objective={"command": command, "direction": "minimize"}, space=space)
        assert messages.partition(":")[0] == (f"objective.command does not contain {unused}" if unused else "")


@pytest.mark.parametrize(("name", "count"), [("gp_ucb", 1), ("bbkb", 4), ("gp_bucb", 4), ("uniform", 4)])
def test_plan_has_no_warning_if_all_workers_have_work(name: str, count: int) -> None:
    assert warnings_of(strategy={"name": name}, workers={"count": count, "executor": "simulated"}) == ""


def test_plan_warns_about_fewer_steps_than_one_training(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def train(x, report):\n    return x\n")
    tree = campaign(
        tmp_path,
        objective={"callable": f"{tmp_path}/steps.py:train", "direction": "minimize"},
        space={"x": {"low": 0, "high": 1}},
        workers={"executor": "inline"},
        enqueue=[],
        early_stopping={"rule": "model", "last_step": 9},
    )
    softmax = {"name": "mnist_logistic_regression", "options": {"epochs": 9, "dataset": "digits"}}
    known = {**tree, "objective": softmax, "space": {}, "early_stopping": {"rule": "model"}}
    text = "budget.steps, 8, is less than one training"
    assert text in " ".join(dry_run(tmp_path, {**known, "budget": {"steps": 8}}).split())
    assert text in " ".join(dry_run(tmp_path, {**tree, "budget": {"steps": 8}}).split())
    assert text[:12] not in dry_run(tmp_path, {**tree, "budget": {"steps": 9}})
