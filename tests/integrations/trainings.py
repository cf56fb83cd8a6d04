"""A small training with each library: six steps on the same data, continued from a checkpoint if
one exists."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bbkb.objectives.objective import Report

STEPS = 6
_RNG = np.random.default_rng(0)
INPUTS = _RNG.normal(size=(64, 4)).astype(np.float32)
TARGETS = (2.0 * INPUTS[:, :1] + INPUTS[:, 1:2]).astype(np.float32)


def train_xgboost(report: Report | None, folder: Path | None, every: int = 1) -> None:
    xgboost = pytest.importorskip("xgboost")
    from bbkb.integrations.xgboost import TrialCallback

    trial = TrialCallback("valid-rmse", report, folder, every)
    data = xgboost.DMatrix(INPUTS, TARGETS)
    xgboost.train(
        {"nthread": 1},
        data,
        STEPS - trial.step,
        evals=[(data, "valid")],
        xgb_model=trial.checkpoint,
        callbacks=[trial],
        verbose_eval=False,
    )


def train_lightgbm(report: Report | None, folder: Path | None, every: int = 1) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    from bbkb.integrations.lightgbm import TrialCallback

    trial = TrialCallback("valid-l2", report, folder, every)
    data = lightgbm.Dataset(INPUTS, TARGETS[:, 0], free_raw_data=False)
    lightgbm.train(
        {"metric": "l2", "num_threads": 1, "verbosity": -1, "min_data_in_leaf": 5},
        data,
        STEPS - trial.step,
        valid_sets=[data.create_valid(INPUTS, TARGETS[:, 0])],
        valid_names=["valid"],
        init_model=trial.checkpoint,
        callbacks=[trial],
    )


def train_keras(report: Report | None, folder: Path | None) -> None:
    pytest.importorskip("torch")
    keras = pytest.importorskip("keras")
    from bbkb.integrations.keras import TrialCallback

    keras.utils.set_random_seed(1)
    trial = TrialCallback("val_loss", report, folder)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    model.fit(
        INPUTS,
        TARGETS,
        validation_data=(INPUTS, TARGETS),
        epochs=STEPS,
        initial_epoch=trial.step,
        shuffle=False,
        callbacks=[trial],
        verbose=0,
    )


def train_lightning(report: Report | None, folder: Path | None) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    import torch

    from bbkb.integrations.lightning import TrialCallback

    class Linear(lightning.LightningModule):  # type: ignore[misc,name-defined]  # its types are not read
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def loss(self, batch: list[object]) -> object:
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def training_step(self, batch: list[object], _: int) -> object:
            return self.loss(batch)

        def validation_step(self, batch: list[object], _: int) -> None:
            self.log("val_loss", self.loss(batch))

        def configure_optimizers(self) -> object:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    lightning.seed_everything(1, verbose=False)
    trial = TrialCallback("val_loss", report, folder)
    data = torch.utils.data.TensorDataset(torch.tensor(INPUTS), torch.tensor(TARGETS))
    batches = torch.utils.data.DataLoader(data, batch_size=16)
    trainer = lightning.Trainer(
        max_epochs=STEPS,
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),  # of torchrun
        callbacks=[trial],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Linear(), batches, batches, ckpt_path=trial.checkpoint)


def train_huggingface(report: Report | None, folder: Path | None) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    import torch

    from bbkb.integrations.huggingface import TrialCallback

    class Linear(torch.nn.Module):  # type: ignore[misc]  # its types are not read
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, inputs: object, labels: object) -> object:
            logits = self.layer(inputs)
            return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}

    transformers.set_seed(1)
    trial = TrialCallback("eval_loss", report, folder)
    rows = zip(torch.tensor(INPUTS), torch.tensor(TARGETS), strict=True)
    data = [{"inputs": row, "labels": target} for row, target in rows]
    arguments = transformers.TrainingArguments(
        output_dir=str(Path(getattr(report, "folder", None) or os.environ.get("BBKB_FOLDER") or ".") / "trainer"),
        num_train_epochs=STEPS,
        learning_rate=0.05,
        per_device_train_batch_size=16,
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(Linear(), arguments, train_dataset=data, eval_dataset=data, callbacks=[trial])
    trainer.train(resume_from_checkpoint=trial.checkpoint)


TRAININGS: dict[str, Callable[[Report | None, Path | None], None]] = {
    "xgboost": train_xgboost,
    "lightgbm": train_lightgbm,
    "keras": train_keras,
    "lightning": train_lightning,
    "huggingface": train_huggingface,
}
