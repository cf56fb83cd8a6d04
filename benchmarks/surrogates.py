"""The surrogates of YAHPO Gym (Pfisterer, Schneider, Moosbauer, Binder, Bischl 2022): neural networks
in ONNX format, with a JSON file that encodes the levels of their inputs. They need onnxruntime."""

import json
from importlib.util import find_spec
from typing import Any

from objectives.datasets import DataSource
from objectives.objective import ObjectiveError
from orchestrator.errors import UserError


def load_surrogate(name: str, source: DataSource) -> tuple[Any, dict[str, dict[str, int]]]:
    """Return an onnxruntime session and the codes of the levels, from the folder `name` of the data.

    Raises ObjectiveError if the files are missing, and UserError without onnxruntime.
    """
    if find_spec("onnxruntime") is None:
        raise UserError(f"the problems {name}-… need onnxruntime, which is not installed; pip install onnxruntime")
    import onnxruntime

    model = source.file(f"{name}/model.onnx")
    encoding = source.file(f"{name}/encoding.json")
    if model is None or encoding is None:
        raise ObjectiveError(
            f"{name}/model.onnx and {name}/encoding.json must be in the data folder, "
            f"{source.folder or 'none is given'}: name one by --data"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session, json.loads(encoding.read_text(encoding="utf-8"))
