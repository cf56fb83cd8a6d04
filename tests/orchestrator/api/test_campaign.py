"""Campaigns from Python: functions, callbacks, results, notebooks."""

import inspect
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import nbformat
import pytest
from nbclient import NotebookClient

from bbkb import Campaign, Result, TrialResult, load, tune
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Range
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.strategies.uniform import Uniform
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.errors import ConfigError, RunError, UserError
from bbkb.orchestrator.session.build import build
from tests.argument_sections import missing_arguments
from tests.orchestrator.runs import LINE, tune_here

REPOSITORY = Path(__file__).parents[3]
SPACE: Space = {"x": Range(0.0, 1.0), "model": Choice(("a", "b"))}


@pytest.fixture
def inline(tmp_path: Path) -> dict[str, Any]:
    """Settings of a campaign in this process that leaves nothing behind."""
    return {"workers": {"executor": "inline"}, "runs": str(tmp_path / "runs"), "strategy": {"name": "uniform"}}


def tune_small(settings: dict[str, Any], **arguments: Any) -> Result:
    """A quick campaign over a closure."""
    offset = 0.25

    def squared(x: float, model: str) -> float:
        return (x - offset) ** 2 + (model == "b")

    return campaign(settings, squared, SPACE, evaluations=12, workers=1, direction="minimize").run(
        progress=False, **arguments
    )


def campaign(
    settings: dict[str, Any], function: Any = lambda x: x, space: Space = LINE, evaluations: int = 3, **arguments: Any
) -> Campaign:
    """A short campaign, which maximizes unless `arguments` say otherwise."""
    return Campaign(
        function, space, evaluations=evaluations, settings=settings, **{"direction": "maximize", **arguments}
    )


def test_closure_is_tuned_and_its_best_trial_has_the_least_value(inline: dict[str, Any]) -> None:
    result = tune_small(inline)
    values = [row["value"] for row in result.rows()]
    assert len(values) == len(result) == 12
    assert result.best.value == min(values)
    assert set(result.best.parameters) == {"x", "model"}
    assert result.outcome == "finished"


def test_function_whose_argument_folder_has_no_default_gets_a_folder(inline: dict[str, Any]) -> None:
    def uses_folder(x: float, folder: Path) -> float:
        return x * folder.is_dir()

    best = campaign(inline, uses_folder, {"x": Range(1, 2)}).run(progress=False).best
    assert best.value is not None
    assert best.value >= 1.0


def test_workers_that_inline_ignores_are_named_in_a_warning(inline: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=r"inline runs one evaluation .* workers\.count has no effect") as caught:
        campaign(inline, workers=2).run(progress=False)
    assert caught[0].filename == __file__


def test_result_is_read_back_from_its_folder(inline: dict[str, Any]) -> None:
    result = tune_small(inline)
    again = load(result.folder)
    assert again.rows() == result.rows()
    assert again.best == result.best
    assert result.report.is_file()


def test_trials_are_a_list_and_with_pandas_a_data_frame(
    inline: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tune_small(inline)
    assert [trial.value for trial in result.trials] == [row["value"] for row in result.rows()]
    assert all(isinstance(trial, TrialResult) for trial in result.trials)
    assert result.dataframe().to_dict("records") == result.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    assert len(result.trials) == 12
    with pytest.raises(ImportError, match=r"dataframe needs pandas.* or use rows\(\)"):
        result.dataframe()


def test_choices_may_be_tuples_lists_and_mappings(inline: dict[str, Any], tmp_path: Path) -> None:
    def size(layers: Any, optimizer: dict[str, Any], dropout: float) -> float:
        assert layers in ((64, 32), [128])
        optimizer.pop("lr")  # a copy
        return float(sum(layers)) * (1 + dropout)

    space: Space = {
        "layers": Choice(((64, 32), [128])),
        "optimizer": Choice(({"name": "sgd", "lr": 0.1},)),
        "dropout": Range(0.0, 0.5),
    }
    first = {"layers": [64, 32], "dropout": 0.25}
    settings = {**inline, "enqueue": [first]}
    done = campaign(settings, size, space, 4).run(progress=False)
    assert done.trials[0].parameters == {**first, "layers": (64, 32), "optimizer": {"name": "sgd", "lr": 0.1}}
    assert {row["layers"] for row in done.rows()} == {"(64, 32)", "[128]"}
    table = tmp_path / "results.csv"
    table.write_text("layers,dropout,optimizer,reward\n\"(64, 32)\",0.5,\"{'name': 'sgd', 'lr': 0.1}\",7\n")
    listed = {"layers": (128,), "dropout": 0.5, "optimizer": {"lr": 0.1, "name": "sgd"}}
    sources = [
        {"run": str(done.folder)},
        {"table": str(table)},
        {"results": [{"parameters": listed, "value": 9.0}, {"parameters": {**listed, "layers": [1]}, "value": 9.0}]},
    ]
    with pytest.warns(UserWarning, match=r"layers must be one of \(64, 32\), \[128\], got"):
        warm = campaign(inline, size, space, 4, known_results=sources).run(progress=False)
    assert warm.known is not None
    assert (len(warm.known.values), len(warm.known.left_out)) == (6, 1)
    assert load(done.folder).best.parameters == done.best.parameters


def test_metric_is_the_deviation_of_the_value(inline: dict[str, Any]) -> None:
    def folds(x: float) -> dict[str, float]:
        luck = len(calls) % 2
        calls.append(x)
        return {"value": -((x - 0.3) ** 2) + luck, "std": (0.001, 1.0)[luck]}

    calls: list[float] = []
    settings = {**inline, "strategy": {"name": "bbkb"}, "objective": {"deviation": "std"}}
    result = campaign(settings, folds, LINE, 20).run(progress=False)
    assert result.best_observed.metrics == {"std": 1.0}
    assert result.best.metrics == {"std": 0.001}
    assert abs(result.best.parameters["x"] - 0.3) < 0.1
    resumed = campaign(settings, folds, LINE, 22).run(progress=False, resume=result.folder)
    optimizer = Optimizer(LINE, "maximize")
    for trial in resumed.trials[:22]:
        (asked,) = optimizer.ask()
        assert (asked, trial.value) == (trial.parameters, trial.value)
        assert trial.value is not None
        asked.tell(trial.value, trial.metrics["std"])


@pytest.mark.parametrize("rule", ["median", "asha"])
def test_deviations_count_beside_stopped_trainings(inline: dict[str, Any], rule: Any) -> None:
    def train(x: float, report: Any, seed: int) -> dict[str, float]:
        value, luck = -((x - 0.3) ** 2), seed % 2
        for step in range(1, 6):
            report(value - 0.2 / step, step)
        return {"value": value + luck, "std": (0.0, 1.0)[luck]}

    def search(evaluations: int, resume: Path | bool = False) -> Result:
        settings = {**inline, "strategy": {"name": "bbkb"}, "objective": {"deviation": "std"}}
        begun = campaign(settings, train, LINE, evaluations, early_stopping=rule)
        return begun.run(progress=False, resume=resume)

    whole = search(24)
    assert {"succeeded", "stopped"} == {trial.status for trial in whole.trials}
    assert whole.best.metrics == {"std": 0.0}  # lucky values are worth little
    assert abs(whole.best.parameters["x"] - 0.3) < 0.1
    assert [each.parameters for each in search(24, search(12).folder).trials] == [
        each.parameters for each in whole.trials
    ]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"value": 1.0, "std": -0.1}, "the deviation of the value and must be >= 0, got -0.1"),
        ({"value": 1.0}, "no metric 'std', which objective.deviation names"),
        ({"value": 1.0, "std": float("nan")}, "'std', which objective.deviation names"),
        ({"std": 1.0}, "'value'"),
    ],
)
def test_trial_with_an_invalid_deviation_fails(
    inline: dict[str, Any], returned: dict[str, float], message: str
) -> None:
    settings = {**inline, "strategy": {"name": "bbkb"}, "objective": {"deviation": "std"}}
    result = campaign(settings, lambda x: returned, LINE, 1).run(progress=False)
    assert message in result.trials[0].error


def test_inline_calls_the_function_itself(inline: dict[str, Any]) -> None:
    class Model:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.fits: list[float] = []

        def __call__(self, x: float) -> float:
            with self.lock:
                self.fits.append(x)
            return x

    model = Model()
    assert campaign(inline, model).run(progress=False).outcome == "finished"
    history: list[float] = []
    assert campaign(inline, lambda x: float(history.__iadd__([x])[-1])).run(progress=False).outcome == "finished"
    assert history == model.fits


def test_callback_gets_each_trial_once_with_its_value(inline: dict[str, Any]) -> None:
    delivered: list[TrialResult] = []
    result = tune_small(inline, on_result=delivered.append)
    assert [(trial_result.trial, trial_result.value) for trial_result in delivered] == [
        (row["trial"], row["value"]) for row in result.rows()
    ]


@pytest.mark.parametrize("kind", [LookupError, StopIteration, KeyboardInterrupt])
def test_error_in_a_callback_stops_the_campaign_at_once_and_is_raised(
    inline: dict[str, Any], kind: type[BaseException]
) -> None:
    error = kind("enough")

    def refuse(result: TrialResult) -> None:
        if result.trial == 2:
            raise error

    with pytest.raises(kind) as caught:
        tune_small(inline, on_result=refuse)
    assert caught.value is error
    (folder,) = Path(inline["runs"]).glob("squared-*")
    stopped = load(folder)
    assert (stopped.outcome, len([row for row in stopped.rows() if row["value"] is not None])) == ("interrupted", 3)


def test_interrupt_ends_a_loop_over_campaigns(inline: dict[str, Any]) -> None:
    begun: list[float] = []

    def interrupted(x: float) -> float:
        begun.append(x)
        signal.raise_signal(signal.SIGINT)
        return x

    def loop() -> None:
        for _ in range(3):
            campaign(inline, interrupted).run(progress=False)

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert len(begun) == 1
    (folder,) = Path(inline["runs"]).glob("interrupted-*")
    assert load(folder).outcome == "interrupted"


def test_failed_trials_have_the_reason(inline: dict[str, Any]) -> None:
    def fail_for_b(x: float, model: str) -> float:
        if model == "b":
            raise ValueError("no b today")
        return x

    delivered: list[TrialResult] = []
    inline["workers"]["retries"] = 0
    campaign(inline, fail_for_b, SPACE, evaluations=12).run(progress=False, on_result=delivered.append)
    failed = [trial_result for trial_result in delivered if trial_result.status == "failed"]
    assert failed
    assert all(trial_result.value is None and "no b today" in trial_result.error for trial_result in failed)


def test_result_without_a_success_has_no_best(inline: dict[str, Any]) -> None:
    inline["workers"]["retries"] = 0
    result = campaign(inline, lambda x: float("nan")).run(progress=False)
    with pytest.raises(RunError, match=r"no evaluation has succeeded; the first one .* failed with .* nan"):
        _ = result.best


def test_notebook_shows_the_result_as_a_table_with_its_text_escaped(inline: dict[str, Any]) -> None:
    space: Space = {"x": Range(0.0, 1.0), "model": Choice(("<script>", "b"))}
    result = campaign(inline, lambda x, model: float(model != "b"), space, evaluations=6).run(progress=False)
    shown = result._repr_html_()
    assert "<script>" not in shown
    assert "best value" in shown
    assert "6 of 6 (6 succeeded" in repr(result)


def test_failed_result_shows_the_first_failure(tmp_path: Path) -> None:
    result = tune_here(tmp_path, lambda x: 1 / 0, evaluations=2)
    assert "failures: 2 attempts: error (trial 0: ZeroDivisionError: division by zero)" in repr(result)


def test_campaign_runs_in_a_separate_thread(inline: dict[str, Any]) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(tune_small(inline)))
    thread.start()
    thread.join()
    assert results[0].outcome == "finished"


def test_campaign_file_runs_from_python_with_overrides(inline: dict[str, Any]) -> None:
    overrides = ["workers={executor: inline}", "budget.evaluations=5", f"runs={inline['runs']}"]
    branin = Campaign.from_file(REPOSITORY / "configs" / "branin.yaml", overrides)
    assert "5 evaluations" in repr(branin)
    assert len(branin.run(progress=False)) == 5


def test_wrong_setting_is_named_and_nothing_is_written(inline: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="did you mean 'retries'"):
        campaign({**inline, "workers": {"retrys": 1}})
    assert not Path(inline["runs"]).exists()


def test_function_that_lacks_a_parameter_is_rejected_before_anything_runs(inline: dict[str, Any]) -> None:
    with pytest.raises(ObjectiveError, match="must accept parameter 'model'"):
        campaign(inline, space=SPACE).run(progress=False)
    assert not list(Path(inline["runs"]).glob("lambda-*"))


def test_function_that_cannot_be_pickled_is_rejected_with_the_reason(inline: dict[str, Any]) -> None:
    lock = threading.Lock()

    def lock_and_return(x: float) -> float:
        with lock:
            return x

    with pytest.raises(ObjectiveError, match=r"cannot be sent to the workers.*lock"):
        campaign({**inline, "workers": {}}, lock_and_return)


def test_function_whose_file_was_replaced_is_not_loaded(inline: dict[str, Any]) -> None:
    pickled = campaign({**inline, "workers": {}})
    (file,) = Path(inline["runs"]).glob("functions/*.pkl")
    file.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ObjectiveError, match="its content changed"):
        build(pickled.settings)


def test_submit_without_a_cluster_names_the_requirement(
    inline: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UserError, match=r"workers\.executor ray"):
        campaign(inline).submit()
    with pytest.raises(UserError, match="address="):
        campaign({"runs": inline["runs"]}).submit()


SCRIPT = """
    from bbkb.objectives.parameters import Range
    from bbkb import tune

    SCALE = 2.0

    def objective(x):
        return SCALE * helper(x)

    def helper(x):
        return -abs(x - 0.5)

    if __name__ == "__main__":
        result = tune(objective, {"x": Range(0.0, 1.0)}, direction="maximize", evaluations=6, workers=2,
                      progress=False, settings={"runs": "runs", "strategy": {"name": "uniform"}})
        print(result.outcome, len(result))
"""


def test_script_with_functions_of_its_own_runs_on_ray_and_resumes(
    tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["finished", "6"]
    (folder,) = (tmp_path / "runs").glob("objective-*")
    again = [sys.executable, "-m", "bbkb", "resume", str(folder), "--set", "budget.evaluations=8"]
    subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(load(folder)) == 8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "train:f"}, "objective must be a function or a mapping, got 'train:f'; .* 'train:f'}"),
        ({"objective": None}, "must be a function or a mapping, got None; .* {'callable': 'train:objective'}"),
        ({"space": [1]}, r"space must be a mapping such as .* got \[1\]; for a table of candidates give"),
        ({"space": {"x": 3}}, "must be Range, Choice, Ordered or a mapping, .* got 3"),
        ({"space": {"x": (10, 50)}}, r"or a mapping, such as Range\(0, 1\) or Choice\(\[…\]\), got \(10, 50\)"),
        ({"settings": [1]}, r"settings must be a mapping such as .* got \[1\]"),
        ({"objectives": 3}, "objectives must be a list such as .* got 3"),
        ({"constraints": [3]}, "each of constraints must be a mapping such as .* got 3"),
    ],
)
def test_argument_of_a_wrong_type_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Campaign(**{"objective": abs, "space": {"x": Range(0.0, 1.0)}, "evaluations": 3, **wrong})


def test_folder_and_a_callback_of_a_wrong_type_are_named(inline: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="folder must be the path of a run's folder, got None"):
        load(cast(Any, None))
    with pytest.raises(ValueError, match="on_result must be a function of one result, got 3"):
        campaign(inline).run(on_result=cast(Any, 3))
    with pytest.raises(UserError, match=r"an address is for workers\.executor ray, got workers\.executor inline"):
        campaign(inline).run(address="10.0.0.1:6379")


@pytest.mark.parametrize("runs", ["x" * 300, "/".join(["folder" * 30] * 30), "a\0b"])
@pytest.mark.parametrize("objective", [lambda x: x, {"command": "true", "direction": "maximize"}])
def test_impossible_folder_of_runs_is_named_before_anything_runs(
    inline: dict[str, Any], runs: str, objective: Any
) -> None:
    with pytest.raises(UserError, match=r"runs.*(too long|null byte)|too long.*runs|NUL"):
        campaign({**inline, "runs": runs}, objective).run(progress=False)


@pytest.mark.parametrize("path", [3, None, b"campaign.yaml", {"name": "c"}])
def test_campaign_file_that_is_not_a_path_is_rejected(path: Any) -> None:
    with pytest.raises(ValueError, match="path must be the path of a campaign file, got"):
        Campaign.from_file(path)
    with pytest.raises(ValueError, match="overrides must be a list"):
        Campaign.from_file("campaign.yaml", "budget.evaluations=3")
    with pytest.raises(ConfigError, match="the campaign file cannot be read: embedded null byte"):
        Campaign.from_file("a\0b")


def test_tune_has_the_arguments_of_a_campaign_and_of_its_run_and_documents_all_of_them() -> None:
    shown = dict(inspect.signature(tune).parameters)
    campaign, run = dict(inspect.signature(Campaign).parameters), dict(inspect.signature(Campaign.run).parameters)
    del run["self"]
    assert shown == campaign | run
    assert list(shown) == [*campaign, *run]
    assert missing_arguments(tune) == []
    for refers in (Campaign, Campaign.run):
        assert "Arguments: see `tune`" in (inspect.getdoc(refers) or "")


def test_result_has_pictures_as_plotly_figures(inline: dict[str, Any]) -> None:
    space = {"x": Range(0, 1), "y": Range(0, 1)}
    result = tune(lambda x, y: x - y, space, evaluations=20, direction="maximize", progress=False, settings=inline)
    for figure in (result.plot(), result.plot_importance(), result.plot_parallel()):
        assert figure.data
        assert figure.layout.title.text


def test_function_needs_a_direction(inline: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='direction is missing: write direction="minimize" for a loss'):
        campaign(inline, direction=None)
    with pytest.raises(ValueError, match=r'direction must be "minimize" or "maximize", got \'up\'$'):
        campaign(inline, direction="up")
    goals = [{"metric": "a"}, {"metric": "b", "direction": "minimize"}]
    several = campaign(inline, lambda x: {"a": x, "b": x}, direction=None, objectives=goals)
    assert "a maximized, b minimized" in repr(several)
    minimized = campaign(inline, direction="minimize")
    assert "minimized" in repr(minimized)
    assert "minimized" in repr(minimized.run(progress=False))


@dataclass(frozen=True)
class OwnUniform(Uniform):
    """A strategy of the caller's own."""

    share: float = 0.5


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("gp_ucb", {"name": "gp_ucb"}),
        ({"name": "bbkb", "mode": "batch"}, {"name": "bbkb", "mode": "batch"}),
        (f"{__file__}:OwnUniform", {"name": f"{__file__}:OwnUniform", "share": 0.5}),
        (Uniform(), {"name": "uniform"}),
        (Uniform, {"name": "uniform"}),
    ],
    ids=["name", "mapping", "reference", "object", "class"],
)
def test_strategy_may_have_any_form(strategy: Any, expected: dict[str, Any], tmp_path: Path) -> None:
    resolved = plain(campaign({"runs": str(tmp_path)}, strategy=strategy, seed=7).settings)
    assert resolved["seed"] == 7
    recorded = resolved["strategy"]
    assert isinstance(recorded, dict)
    assert expected.items() <= recorded.items() or recorded["name"].endswith(":OwnUniform")


def test_strategy_is_given_once_and_must_be_valid(inline: dict[str, Any]) -> None:
    unset = {"runs": inline["runs"]}
    with pytest.raises(ValueError, match="strategy must be given once, as an argument or in settings; got both"):
        campaign(inline, strategy="uniform")
    with pytest.raises(ValueError, match="the strategy int must have the methods init, ask"):
        campaign(unset, strategy=int)
    with pytest.raises(ConfigError, match=r"strategy\.name must be a listed strategy .*did you mean"):
        campaign(unset, strategy="bkbb")


CELLS = (
    """
from bbkb import CandidateOptimizer, Optimizer, Range, tune
target = 0.3
result = tune(lambda x: (x - target) ** 2, {"x": Range(0.0, 1.0)}, evaluations=18, direction="minimize",
              executor="inline")
""",
    "result",
    "result.plot()",
    "result.plot_parallel()",
    "result.plot_importance()",
    """
optimizer = Optimizer(space={"x": Range(0.0, 1.0)}, direction="minimize")
optimizer.tell(optimizer.ask(2), [0.5, 0.25])
optimizer
""",
    """
optimizer = CandidateOptimizer([[0.0], [0.5], [1.0]])
optimizer.tell([1], [0.75])
optimizer
""",
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
@pytest.mark.thorough
def test_notebook_shows_progress_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    v4: Any = nbformat.v4  # it has no annotations
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in CELLS])
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    progress, table, *shown = [cell.outputs for cell in notebook.cells]
    assert len(progress) == 1  # one output that is updated in place
    bar = progress[0]["data"]["text/html"]
    assert "<progress value='18' max='18'></progress> 18/18 done, best " in bar
    assert "(minimized)" in bar
    assert "18 of 18 (18 succeeded" in table[-1]["data"]["text/html"]
    assert "/report.html' target='_blank'>report</a>" in table[-1]["data"]["text/html"]
    for outputs, trace in zip(shown[:3], ("scatter", "parcoords", "bar"), strict=True):
        assert outputs[-1]["data"]["application/vnd.plotly.v1+json"]["data"][0]["type"].startswith(trace)
    for outputs, part in zip(shown[3:], ("0.25", "0.75"), strict=True):
        assert part in outputs[-1]["data"]["text/html"]
