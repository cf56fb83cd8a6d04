"""Population-based training of bbkb and of Ray Tune on three small trainings with schedules.

In `quadratic` each parameter moves one coordinate. The others are networks of scikit-learn whose
rate, momentum and penalty may change after each epoch; the value is the loss on held-out rows.

    python -m benchmarks.curves.population --problem digits --method ray
"""

import json
import pickle
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import typer
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import scale

from bbkb.objectives.parameters import Range
from bbkb.orchestrator.api import tune

POPULATION = 10
STEPS = 30
INTERVAL = 3
NETWORK = {"rate": Range(1e-4, 1.0, log=True), "momentum": Range(0.1, 0.99), "penalty": Range(1e-6, 0.1, log=True)}
SPACES = {"quadratic": {"h0": Range(0.0, 1.0), "h1": Range(0.0, 1.0)}, "digits": NETWORK, "cancer": NETWORK}
PBT = {"name": "pbt", "population": POPULATION, "interval": INTERVAL, "last_step": STEPS}


def train(problem: str, config: Mapping[str, float], folder: Path, report: Any) -> float:
    """Train from the checkpoint in `folder`; return the last loss."""
    file = folder / "state.pickle"
    step, state = pickle.loads(file.read_bytes()) if file.exists() else (0, None)
    loss = np.inf
    for at in range(step + 1, STEPS + 1):
        state, loss = _advance(problem, state, config)
        file.write_bytes(pickle.dumps((at, state)))
        report(loss, at)
    return loss


def _advance(problem: str, state: Any, config: Mapping[str, float]) -> tuple[Any, float]:
    """Return the state and the loss after one more step."""
    if problem == "quadratic":
        theta = np.array([0.9, 0.9]) if state is None else state
        theta = theta - 0.1 * np.array([config["h0"], config["h1"]]) * theta
        return theta, float(theta @ theta)
    load = load_digits if problem == "digits" else load_breast_cancer
    features, classes = load(return_X_y=True)
    split = train_test_split(scale(features), classes, test_size=0.4, random_state=0, stratify=classes)
    model = state or MLPClassifier((32,), solver="sgd", random_state=1)
    model.set_params(learning_rate_init=config["rate"], momentum=config["momentum"], alpha=config["penalty"])
    if state is not None:
        model._optimizer.learning_rate = config["rate"]
        model._optimizer.momentum = config["momentum"]
    model.partial_fit(split[0], split[2], classes=np.unique(classes))
    chances = np.nan_to_num(model.predict_proba(split[1]), nan=1.0 / len(np.unique(classes)))
    return model, float(log_loss(split[3], chances))


def bbkb(problem: str, seed: int, strategy: Mapping[str, object], trials: int) -> float:
    def objective(report: Any, folder: Path, **config: float) -> float:
        return train(problem, config, folder, report)

    with tempfile.TemporaryDirectory() as runs:
        sections = {"workers": {"executor": "simulated", "trial_folders": True}, "runs": runs, "strategy": strategy}
        options: dict[str, Any] = {"evaluations": trials, "workers": 4, "seed": seed, "settings": sections}
        best = tune(objective, SPACES[problem], direction="minimize", progress=False, **options).best
    return np.inf if best.value is None else best.value


def ray_tune(problem: str, seed: int) -> float:
    """Ray Tune's scheduler on four CPUs: the members take turns, and their processes are reused."""
    import ray
    from ray import tune as ray_tune

    class Member(ray_tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.state: Any = None

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.state = None
            return True

        def step(self) -> dict[str, float]:
            self.state, loss = _advance(problem, self.state, self.config)
            return {"loss": loss}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "state").write_bytes(pickle.dumps(self.state))

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.state = pickle.loads(Path(checkpoint, "state").read_bytes())

    random.seed(seed)
    np.random.seed(seed)
    if not ray.is_initialized():
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    domains = {
        name: (ray_tune.loguniform if kind.log else ray_tune.uniform)(kind.low, kind.high)
        for name, kind in SPACES[problem].items()
    }
    scheduler = ray_tune.schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        metric="loss",
        mode="min",
        perturbation_interval=INTERVAL,
        hyperparam_mutations=domains,
        quantile_fraction=0.2,
    )
    with tempfile.TemporaryDirectory() as runs:
        results = ray_tune.Tuner(
            ray_tune.with_resources(Member, {"cpu": 1}),
            param_space=domains,
            tune_config=ray_tune.TuneConfig(scheduler=scheduler, num_samples=POPULATION, reuse_actors=True),
            run_config=ray_tune.RunConfig(storage_path=runs, stop={"training_iteration": STEPS}, verbose=0),
        ).fit()
    return float(results.get_dataframe()["loss"].min())


def main(problem: str = "digits", method: str = "bbkb", seeds: int = 5) -> None:
    """Print the losses of the best member at its last step."""
    methods: dict[str, Callable[[str, int], float]] = {
        "bbkb": lambda problem, seed: bbkb(problem, seed, PBT, POPULATION * STEPS // INTERVAL),
        "random": lambda problem, seed: bbkb(problem, seed, {"name": "uniform"}, POPULATION),
        "ray": ray_tune,
    }
    print(json.dumps([problem, method, [methods[method](problem, seed) for seed in range(seeds)]]))


if __name__ == "__main__":
    typer.run(main)
