"""Population-based training of bbkb and by the rules of Ray Tune on three small trainings with schedules.

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

from objectives.parameters import Range
from orchestrator.api import tune

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


def ray_rules(problem: str, seed: int) -> float:
    """Ray Tune's scheduler on its own: its exploration, its quantiles, and the checkpoints it keeps."""
    from ray import tune as ray
    from ray.tune.schedulers.pbt import _explore

    random.seed(seed)
    np.random.seed(seed)
    kinds = SPACES[problem].items()
    domains = {name: (ray.loguniform if kind.log else ray.uniform)(kind.low, kind.high) for name, kind in kinds}
    members: list[dict[str, Any]] = [
        {"config": {name: domain.sample() for name, domain in domains.items()}, "step": 0, "state": None, "loss": None}
        for _ in range(POPULATION)
    ]
    while training := sorted((one for one in members if one["step"] < STEPS), key=lambda one: one["step"])[:4]:
        for member in training:
            for _ in range(INTERVAL):
                member["state"], member["loss"] = _advance(problem, member["state"], member["config"])
            member["step"] += INTERVAL
        for member in (one for one in training if one["step"] < STEPS):
            known = sorted((one for one in members if one["loss"] is not None), key=lambda one: one["loss"])
            share = min(int(np.ceil(0.2 * len(known))), len(known) // 2)
            parent = random.choice(known[:share] or [member])
            if any(member is one for one in known[:share]):
                member["kept"] = pickle.dumps((member["state"], member["step"]))
            elif any(member is one for one in known[len(known) - share :]) and "kept" in parent:
                config, _ = _explore(parent["config"], domains, 0.25, (1.2, 0.8), None)  # type: ignore[arg-type]
                state, step = pickle.loads(parent["kept"])
                member.update(config=config, state=state, step=step, loss=parent["loss"])
    return min(float(member["loss"]) for member in members)


def main(problem: str = "digits", method: str = "bbkb", seeds: int = 5) -> None:
    """Print the losses of the best member at its last step."""
    methods: dict[str, Callable[[str, int], float]] = {
        "bbkb": lambda problem, seed: bbkb(problem, seed, PBT, POPULATION * STEPS // INTERVAL),
        "random": lambda problem, seed: bbkb(problem, seed, {"name": "uniform"}, POPULATION),
        "ray": ray_rules,
    }
    print(json.dumps([problem, method, [methods[method](problem, seed) for seed in range(seeds)]]))


if __name__ == "__main__":
    typer.run(main)
