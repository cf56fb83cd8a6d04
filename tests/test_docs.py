"""README and documentation are true: their code runs, their campaign files are valid, their links lead somewhere,
tutorials work as written, and the reference has all options of strategies."""

import importlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import get_args

import numpy as np
import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from bbkb import Result
from bbkb import load as load_run
from bbkb.orchestrator.annotations import DECIDED, Section, annotations_of, documentation_of
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Observation
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.cli.main import load as load_command
from bbkb.orchestrator.settings.loading import load
from bbkb.workers.executor import TRAITS, ExecutorName
from tests.orchestrator.runs import history_of
from tests.processes import REPOSITORY, run_python

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BASE = {
    "name": "snippet",
    "space": {"learning_rate": {"low": 1e-4, "high": 1.0, "log": True}},
    "objective": {"command": "python train.py --lr {learning_rate}", "direction": "maximize"},
    "budget": {"evaluations": 5},
}


LIBRARIES = {  # optional libraries, and the requirements of code that imports them
    "keras": ("keras", "torch"),
    "lightgbm": ("lightgbm",),
    "lightning": ("lightning", "torch"),
    "pandas": ("pandas",),
    "torch": ("torch",),
    "transformers": ("transformers", "accelerate", "torch"),
    "xgboost": ("xgboost",),
}


def needed_libraries(code: str) -> list[pytest.MarkDecorator]:
    """Return marks that skip code if an optional library that it imports is missing."""
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    needed = [name for library in sorted(imported & LIBRARIES.keys()) for name in LIBRARIES[library]]
    return [pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is missing") for name in needed]


def snippets(language: str, pages: list[Path] = PAGES, marks: Sequence[pytest.MarkDecorator] = ()) -> list[object]:
    """Return the code blocks of a language, each named after its file and line."""
    return [
        pytest.param(
            match[1],
            id=f"{page.name}:{page.read_text()[: match.start()].count(chr(10)) + 1}",
            marks=[*marks, *needed_libraries(match[1])],
        )
        for page in pages
        for match in re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    ]


README, *OTHER_PAGES = PAGES
# in place of the client of Weights & Biases, which needs its server
WANDB = """
class Run:
    logged = []

    def log(self, values):
        assert {"x", "value", "trial"} <= values.keys(), values
        self.logged.append(values)

    def finish(self):
        assert [values["trial"] for values in self.logged] == list(range(10))


def init(**options):
    assert options["project"]
    return Run()
"""


def test_guide_lists_all_executors() -> None:
    guide = (REPOSITORY / "docs" / "guide" / "campaign_file.md").read_text()
    table = guide.partition("### Executors\n")[2].partition("\n#")[0]
    named = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert named == set(TRAITS) == set(get_args(ExecutorName))


@pytest.mark.parametrize(
    "code", [*snippets("python", [README]), *snippets("python", OTHER_PAGES, [pytest.mark.thorough])]
)
def test_python_code_of_the_documentation_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(WANDB)
    done = run_python("-W", "error::DeprecationWarning:__main__", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def run_the_guides_strategy(
    name: str, candidates: int, monkeypatch: pytest.MonkeyPatch, executor: str = "inline", **options: object
) -> Result:
    """Run a strategy of the guide, 24 evaluations in the present folder."""
    page = (REPOSITORY / "docs" / "guide" / "own_strategy.md").read_text()
    codes = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    module = f"guide_{name.lower()}"  # each test imports its own
    Path(f"{module}.py").write_text(next(code for code in codes if f"class {name}(" in code))
    campaign = {
        "name": "own",
        "objective": {"name": "branin"},
        "candidates": {"size": candidates},
        "strategy": {"name": f"{module}:{name}", **options},
        "budget": {"evaluations": 24},
        "workers": {"executor": executor, "count": 2},
    }
    Path("campaign.yaml").write_text(yaml.safe_dump(campaign))
    monkeypatch.syspath_prepend(Path.cwd())
    done = CliRunner().invoke(app, ["run", "campaign.yaml", "--run", "own", "--quiet"])
    assert done.exit_code == 0, done.output
    return load_run("runs/own")


@pytest.mark.parametrize(
    ("name", "candidates", "batches"), [("LocalSearch", 100, 3), ("LocalSearch", 9, 2), ("AsyncLocalSearch", 100, 4)]
)
def test_guides_strategy_learns_between_its_choices_and_ends_with_the_last_candidate(
    name: str, candidates: int, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run_the_guides_strategy(name, candidates, monkeypatch, batch=8).rows()
    choices = {row["batch"] for row in rows}
    assert len(choices) == batches if name == "LocalSearch" else len(choices) >= batches
    assert candidates == 100 or sorted(row["arm"] for row in rows) == list(range(candidates))


def test_guides_model_predicts_its_picks_and_counts_pending_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_the_guides_strategy("Improvement", 300, monkeypatch, "simulated", first=6)
    trials = history_of(run).trials
    has_model = [row.pick.mean is not None for row in trials]
    assert has_model == sorted(has_model), "the random picks come first"
    assert sum(has_model) >= 16
    assert len({row.arm for row in trials}) == 24
    features = np.linspace(0, 1, 60)[:, None]
    strategy = importlib.import_module("guide_improvement").Improvement(first=4)
    state = strategy.init(Arms.of(features), np.random.default_rng(0))
    arms = [5, 20, 40, 58]
    state = strategy.tell(state, [Observation(arm, float(features[arm, 0])) for arm in arms], np.random.default_rng(0))
    picks = [pick.arm for pick in strategy.ask(state, [], 3).picks]
    assert picks == [pick.arm for pick in strategy.ask(state, [], 3).picks]
    assert len({*picks, *arms}) == 7
    assert [pick.arm for pick in strategy.ask(state, picks[:1], 2).picks] == picks[1:]
    assert np.argmax(strategy.posterior(state).mean) > 50


@pytest.mark.parametrize("text", snippets("yaml"))
def test_campaign_files_of_the_documentation_are_valid(text: str, tmp_path: Path) -> None:
    written = yaml.safe_load(text)
    unknown = set(written) - {*annotations_of(Settings)}
    assert not unknown, "a YAML block is a campaign file or some sections of one"
    file = tmp_path / "campaign.yaml"
    own_space = {"name", "objective", "space", "candidates"} & set(written) >= {"objective", "candidates"}
    is_complete = {"name", "objective", "budget"} <= set(written)
    added = {key for key in BASE if not is_complete and not (own_space and key == "space")}
    base = {key: BASE[key] for key in added}
    file.write_text(yaml.safe_dump({**base, **written}))
    (tmp_path / "earlier.csv").write_text("learning_rate,reward\n0.1,1.0\n")
    load(file, [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_link_leads_to_a_file(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_page_of_commands_lists_every_command_and_no_other() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    page = REPOSITORY / "docs" / "guide" / "commands.md"
    assert set(re.findall(r"^\| `bbkb ([a-z-]+)", page.read_text(), re.MULTILINE)) == set(group.commands)


def commands_of(text: str) -> list[list[str]]:
    """The words of each `bbkb …` in a code span, or at the beginning of a line of code, without
    comments."""
    commands = re.findall(r"(?:`|^(?: {4})?)bbkb +([a-z][^`\n]*)", text, re.MULTILINE)
    return [re.split(r"\s#", words)[0].split() for words in commands]


def unknown_words(words: list[str]) -> list[str]:
    """The command or the options in `words` that do not exist."""
    name, *arguments = words
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    if name not in group.commands:
        return [name]
    command = load_command(name)
    if hasattr(command, "commands") and arguments:  # a group, such as `launch slurm`
        name, *arguments = arguments
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    option_names = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    return [option for option in options if option not in option_names | {"--help"}]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_or_option_in_the_documentation_exists(page: Path) -> None:
    unknown = [(words, unknown_words(words)) for words in commands_of(page.read_text())]
    assert [pair for pair in unknown if pair[1]] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_file_named_by_the_documentation_exists(page: Path) -> None:
    text = page.read_text()
    paths = re.findall(r"`((?:benchmarks|configs|deploy|docs|objectives|orchestrator|tests|workers)/[\w./-]+)`", text)
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []
    tests = {file.name for file in (REPOSITORY / "tests").rglob("test_*.py")}
    assert [name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in tests] == []


def test_gallery_has_the_files_of_each_entry_and_no_others() -> None:
    gallery = REPOSITORY / "docs" / "gallery"
    entries = yaml.safe_load((REPOSITORY / "docs" / "extensions" / "gallery.yaml").read_text())
    assert {each.name for each in gallery.iterdir() if each.is_dir()} == {*entries}
    for name, entry in entries.items():
        files = {each.name for each in (gallery / name).iterdir()}
        assert {"output.txt", *(f"{report}.html" for report in entry.get("reports", ["report"]))} <= files
        assert "picture" not in entry or "picture.png" in files or "picture.svg" in files
        page = (gallery / "index.md").read_text()
        assert [file for file in files if f"{name}/{file}" not in page] == []


def test_reference_shows_every_strategy() -> None:
    reference = (REPOSITORY / "docs" / "reference.md").read_text()
    for strategy in STRATEGIES.values():
        assert f"::: {strategy.__module__}.{strategy.__name__}\n" in reference


def test_guide_names_every_key_of_the_campaign_file() -> None:
    page = (REPOSITORY / "docs" / "guide" / "campaign_file.md").read_text()
    keys = [".".join(key) for key in keys_of(Settings)]
    assert [key for key in keys if f"`{key}`" not in page] == []


def keys_of(section: type) -> list[tuple[str, ...]]:
    """Yield the keys of a section. The keys of a subsection replace it, unless the page describes
    only the subsection as a whole."""
    keys: list[tuple[str, ...]] = []
    for name, annotation in annotations_of(section).items():
        kind = get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
        if DECIDED in getattr(annotation, "__metadata__", ()):
            continue  # filled in by bbkb
        if isinstance(kind, type) and issubclass(kind, Section) and name != "simulation":
            keys += [(name, *key) for key in keys_of(kind)]
        else:
            keys.append((name,))
    return keys


EXTENSION = Path(__file__).parents[1] / "docs" / "extensions" / "options.py"


@pytest.fixture(scope="module")
def extension() -> ModuleType:
    pytest.importorskip("griffe", reason="griffe comes with the extra docs")
    spec = importlib.util.spec_from_file_location("reference_options", EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", STRATEGIES)
def test_option_of_a_strategy_has_a_row_with_its_description(extension: ModuleType, name: str) -> None:
    strategy = STRATEGIES[name]
    rows = {row.name: row.description for row in extension.parameters(strategy)}
    assert rows == documentation_of(strategy)


def test_row_has_type_and_default_of_the_field(extension: ModuleType) -> None:
    rows = {row.name: row for row in extension.parameters(STRATEGIES["bbkb"])}
    assert (rows["delta"].annotation, rows["delta"].value) == ("float", "0.01")
    assert rows["resampling"].value == "'arms'"


def test_page_of_a_class_has_the_rows(extension: ModuleType) -> None:
    griffe = sys.modules["griffe"]
    loaded = griffe.load("bbkb", extensions=griffe.Extensions(extension.OptionsFromAnnotations()))
    strategy = loaded["orchestrator.bandit.strategies.gp_ucb.GPUCB"]
    tables = [section.value for section in strategy.docstring.parsed if section.kind.value == "parameters"]
    assert {row.name for table in tables for row in table} == set(documentation_of(STRATEGIES["gp_ucb"]))


# a file's block follows a line with its name and a colon; a block in `sh` is run
STEP = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)


def follow(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, replace: tuple[str, str] = ("", "")) -> str:
    """Follow a tutorial in `folder`, and return the output of its commands."""
    monkeypatch.chdir(folder)
    printed = ""
    for step in STEP.finditer((REPOSITORY / "docs" / "tutorials" / page).read_text(encoding="utf-8")):
        if step["file"]:
            Path(step["file"]).write_text(step["text"], encoding="utf-8")
        elif step["language"] == "sh":
            for line in step["text"].splitlines():
                command, *arguments = shlex.split(line.replace(*replace) if replace[0] else line)
                assert command == "bbkb", "only our commands are run"
                done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
                assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
                printed += done.output
    return printed


def test_tutorial_first_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = follow("first_campaign.md", tmp_path, monkeypatch)
    for part in ("is valid", "dry run: nothing was written", "30 of 40 done", "--learning_rate", "picture "):
        assert part in printed
    files = {path.name for path in (tmp_path).iterdir()}
    assert files >= {"train.py", "campaign.yaml", "runs", "trials.csv", "curves.html"}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_tutorial_network_on_a_cluster(tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = follow("network_on_a_cluster.md", tmp_path, monkeypatch, ("127.0.0.1:6379", ray_cluster))
    assert "finished" in printed
    assert "--width" in printed
    assert (tmp_path / "runs" / "digits" / "trials" / "000003" / "network.joblib").is_file()
