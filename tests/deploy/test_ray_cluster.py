"""The example for `ray up`: Ray's own schema accepts it, and no machine starts Ray without a
token."""

import json
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml

FILE = Path(__file__).parents[2] / "deploy" / "ray-cluster.yaml"
SCHEMA = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"


def test_schema_of_ray_accepts_the_cluster_file() -> None:
    cluster = yaml.safe_load(FILE.read_text())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "min_wokers": 2}, schema)


@pytest.mark.parametrize("key", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_machines_start_ray_with_a_token_and_our_settings(key: str) -> None:
    starts = [command for command in yaml.safe_load(FILE.read_text())[key] if "ray start" in command]
    assert len(starts) == 1
    assert "RAY_AUTH_MODE=token" in starts[0]
    assert ". ~/ray.env" in starts[0]
