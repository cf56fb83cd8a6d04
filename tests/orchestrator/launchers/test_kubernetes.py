"""Manifests for KubeRay: the keys the operator knows, its own rules, and what a campaign needs of them."""

import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.launchers.kubernetes import Pods, as_yaml, manifests_for, workers_on
from orchestrator.settings.model import Settings, from_mapping, load

REPOSITORY = Path(__file__).parents[3]
QUICKSTART = REPOSITORY / "configs" / "quickstart.yaml"
CRDS = os.environ.get("BBKB_KUBERAY_CRDS")
KUBERNETES = "1.34"
TEXT = "name: sine\n"


def settings_of(store: str = "sqlite", **workers: Any) -> Settings:
    campaign = {"name": "sine", "objective": {"name": "sine"}, "budget": {"evaluations": 5}, "store": store}
    return from_mapping({**campaign, "workers": workers})


def manifests(run: str = "first", store: str = "sqlite", pods: Pods | None = None) -> dict[str, Any]:
    made = manifests_for(pods or Pods(image="registry.example/bbkb:1"), settings_of(store), TEXT, run, "a token")
    return {one["kind"]: one for one in yaml.safe_load_all(as_yaml(made))}


def test_results_outlive_the_pods_and_a_job_that_is_tried_again_resumes() -> None:
    made = manifests(pods=Pods(image="i", pods=3, cpus=4))
    assert set(made) == {"Secret", "ConfigMap", "PersistentVolumeClaim", "RayJob"}
    job = made["RayJob"]["spec"]
    assert job["entrypoint"].endswith("--set runs=/runs --workers 12 --run first --or-resume")
    head = job["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in head["volumes"]}
    assert claims["runs"] == {"claimName": made["PersistentVolumeClaim"]["metadata"]["name"]}
    assert made["ConfigMap"]["data"] == {"campaign.yaml": TEXT}


def test_the_example_in_deploy_is_what_the_code_writes_without_its_token() -> None:
    text = (REPOSITORY / "deploy" / "kubernetes" / "campaign.yaml").read_text()
    pods = Pods(image="registry.example/bbkb:1", pods=3, cpus=4)
    made = manifests_for(pods, load(QUICKSTART), QUICKSTART.read_text(), "quickstart", "not shown")[1:]
    made[-1]["spec"]["rayClusterSpec"]["rayVersion"] = "2.60.0"
    assert text.partition("---\n")[2] == as_yaml(made)


def test_in_a_database_results_need_no_volume_and_its_password_comes_from_a_secret() -> None:
    made = manifests(store="postgresql://server/campaigns")
    assert "PersistentVolumeClaim" not in made
    head = made["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert head["containers"][0]["envFrom"] == [{"secretRef": {"name": "first-store"}}]


@settings(max_examples=30, deadline=None)
@given(pods=st.integers(1, 50), cpus=st.integers(1, 64))
def test_the_operators_own_rules_hold(pods: int, cpus: int) -> None:
    made = manifests(pods=Pods(image="i", pods=pods, cpus=cpus))
    job = made["RayJob"]["spec"]
    cluster = job["rayClusterSpec"]
    version = [int(part) for part in cluster["rayVersion"].split(".")[:2]]
    assert version >= [2, 52]  # token authentication
    assert cluster["authOptions"] == {"mode": "token", "secretName": made["Secret"]["metadata"]["name"]}
    assert job["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
    assert not (job.get("shutdownAfterJobFinishes") and job.get("deletionStrategy"))
    for group in cluster["workerGroupSpecs"]:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", group["groupName"])
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    specs = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for spec in (one["template"]["spec"] for one in specs):
        assert spec["securityContext"]["runAsNonRoot"]
        assert set(spec["containers"][0]["resources"]["requests"]) <= {"cpu", "memory", "nvidia.com/gpu"}
    assert all(isinstance(value, str) for one in specs for value in one["rayStartParams"].values())


@pytest.mark.parametrize("run", ["First", "1st", "a_b", "a-", "a" * 48, ""])
def test_a_name_that_kubernetes_does_not_take_is_refused(run: str) -> None:
    with pytest.raises(UserError, match="--run must have"):
        manifests(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pods": 0}, "--pods"),
        ({"memory": "4 GB"}, "--memory"),
        ({"storage": "x"}, "--storage"),
        ({"gpus": -1}, "--gpus"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Pods(image="i", **change)


def test_a_pod_must_hold_one_evaluation() -> None:
    with pytest.raises(UserError, match=r"--cpus must be >= workers\.cpus = 4"):
        workers_on(Pods(image="i", cpus=2), settings_of(cpus=4.0))
    assert workers_on(Pods(image="i", pods=2, cpus=8, gpus=1), settings_of(gpus=0.5)) == 4


@pytest.mark.parametrize("store", ["sqlite", "postgresql://server/campaigns"])
def test_kubernetes_own_schema_knows_every_key(store: str) -> None:
    made = manifests(store=store, pods=Pods(image="i", pods=2, gpus=1))
    cluster = made.pop("RayJob")["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **group["template"]} for group in groups]
    for manifest in (*made.values(), *pods):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    pods[0]["spec"]["containerz"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="containerz"):
        kubernetes_validate.validate(pods[0], KUBERNETES, strict=True)


@pytest.mark.skipif(CRDS is None, reason="needs BBKB_KUBERAY_CRDS, a folder with the operator's CRDs")
@pytest.mark.parametrize("store", ["sqlite", "postgresql://server/campaigns"])
def test_the_operators_schema_knows_every_key(store: str) -> None:
    job = manifests(store=store)["RayJob"]
    jsonschema.Draft4Validator(_schema("RayJob")).validate(job)
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containerz"] = []
    with pytest.raises(jsonschema.ValidationError, match="containerz"):
        jsonschema.Draft4Validator(_schema("RayJob")).validate(job)


def _schema(kind: str) -> Any:
    """The newest schema of a kind, in which keys that it does not know are errors."""
    for file in Path(str(CRDS)).glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())
        if crd["spec"]["names"]["kind"] == kind:
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            return _closed(schema)
    raise AssertionError(f"{CRDS} has no CRD of {kind}")


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("type", None)
        closed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    is_open = "additionalProperties" in closed or closed.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in closed and not is_open:
        closed["additionalProperties"] = False
    return closed
