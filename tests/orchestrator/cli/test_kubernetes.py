"""Manifests for KubeRay: Kubernetes' schemas and the needs of a campaign."""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.launchers.kubernetes import Pods, as_yaml, manifests_for, workers_on
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.loading import from_mapping, load

REPOSITORY = Path(__file__).parents[3]
QUICKSTART = REPOSITORY / "configs" / "quickstart.yaml"
CRDS = os.environ.get("BBKB_KUBERAY_CRDS")
TEXT = "name: sine\n"
TREE = {"name": "sine", "objective": {"name": "sine"}, "budget": {"evaluations": 5}}


IMAGE = "registry.example/bbkb:1"


def settings_of(**workers: Any) -> Settings:
    return from_mapping({**TREE, "workers": workers})


def manifests(run: str = "first", pods: Pods | None = None, **sections: Any) -> dict[str, Any]:
    settings = from_mapping({**TREE, **sections})
    documents = manifests_for(pods or Pods(image=IMAGE), settings, TEXT, run, "a token")
    return {document["kind"]: document for document in yaml.safe_load_all(as_yaml(documents))}


def check(documents: Iterable[dict[str, Any]]) -> None:
    """Validate the manifests and their pods against the schemas of Kubernetes."""
    for document in documents:
        if document["kind"] != "RayJob":
            kubernetes_validate.validate(document, "1.34", strict=True)
            continue
        cluster = document["spec"]["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            template = {"metadata": {}, **group["template"]}
            kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **template}, "1.34", strict=True)


def head_of(documents: dict[str, Any]) -> Any:
    """The head's pod in the manifests."""
    cluster = documents["RayJob"]["spec"]["rayClusterSpec"]
    return cluster["headGroupSpec"]["template"]["spec"]


def test_results_outlive_the_pods_and_a_retried_job_resumes() -> None:
    documents = manifests(pods=Pods(image="i", pods=3, cpus=4))
    assert set(documents) == {"Secret", "ConfigMap", "PersistentVolumeClaim", "RayJob"}
    job = documents["RayJob"]["spec"]
    assert job["entrypoint"].endswith("--set runs=/runs --workers 12 --run first --or-resume")
    volumes = head_of(documents)["volumes"]
    claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in volumes}
    assert claims["runs"] == {"claimName": documents["PersistentVolumeClaim"]["metadata"]["name"]}
    assert documents["ConfigMap"]["data"] == {"campaign.yaml": TEXT}


@pytest.mark.parametrize(
    ("workers", "count"),
    [({}, 20), ({"machines": 2, "cpus": 4}, 2), ({"machines": 6, "cpus": 2, "ray_train": True}, 1)],
)
def test_evaluations_on_several_pods_get_that_number_of_pods(workers: dict[str, Any], count: int) -> None:
    documents = manifests(pods=Pods(image=IMAGE, pods=5, cpus=4, gpus=2), workers=workers)
    check(documents.values())
    job = documents["RayJob"]["spec"]
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert f" --workers {count} " in job["entrypoint"]
    assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (5, 5, 5), "nothing changes their number"
    assert group["rayStartParams"] == {"num-cpus": "4"}
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "2"}
    head = job["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0", "no machine of an evaluation is the head"


def test_example_in_deploy_matches_the_code_except_for_the_token() -> None:
    text = (REPOSITORY / "deploy" / "kubernetes" / "campaign.yaml").read_text()
    pods = Pods(image=IMAGE, pods=3, cpus=4)
    file = QUICKSTART.read_text()
    token, *others = manifests_for(pods, load(QUICKSTART), file, "quickstart", "not shown")
    others[-1]["spec"]["rayClusterSpec"]["rayVersion"] = "2.60.0"
    assert text.partition("---\n")[2] == as_yaml(others)
    check([token, *others])


def test_kubernetes_with_a_database_needs_no_volume_and_reads_a_secret() -> None:
    documents = manifests(store="postgresql://server/campaigns")
    assert "PersistentVolumeClaim" not in documents
    (head,) = head_of(documents)["containers"]
    assert head["envFrom"] == [{"secretRef": {"name": "first-store"}}]


@pytest.mark.parametrize(
    ("run", "pods"),
    [
        ("a", Pods(image="i")),
        ("a" * 47, Pods(image="i", pods=50, cpus=64, memory="1.5Ti", storage="500M")),
        ("a-1", Pods(image=f"registry.example:5000/a/b:1.0@sha256:{'0' * 64}", pods=2, gpus=8)),
    ],
)
@pytest.mark.parametrize("store", ["sqlite", "postgresql://server/campaigns"])
def test_manifests_satisfy_the_schemas_of_kubernetes(run: str, pods: Pods, store: str) -> None:
    documents = manifests(run, pods, store=store)
    check(documents.values())
    cluster = documents["RayJob"]["spec"]["rayClusterSpec"]
    assert cluster["authOptions"]["mode"] == "token"
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("run", ["First", "1st", "a_b", "a-", "a" * 48, ""])
def test_name_that_kubernetes_rejects_is_rejected(run: str) -> None:
    with pytest.raises(UserError, match="--run must have"):
        manifests(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pods": 0}, "--pods"),
        ({"memory": "4 GB"}, "--memory"),
        ({"storage": "x"}, "--storage"),
        ({"memory": "0Gi"}, "--memory must be a positive Kubernetes quantity"),
        ({"image": ""}, "--image must be an image"),
        ({"image": "a b"}, "--image must be an image"),
        ({"image": "Registry/Upper"}, "--image must be an image"),
        ({"gpus": -1}, "--gpus"),
    ],
)
def test_kubernetes_values_that_it_would_reject_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Pods(**{"image": "i", **change})


def test_pod_must_hold_one_evaluation() -> None:
    with pytest.raises(UserError, match=r"--cpus must be >= workers\.cpus = 4"):
        workers_on(Pods(image="i", cpus=2), settings_of(cpus=4.0))
    assert workers_on(Pods(image="i", pods=2, cpus=8, gpus=1), settings_of(gpus=0.5)) == 4


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("store: postgresql://me:geheim@server/campaigns", "line 2 of the campaign file"),
        ("known_results: [{optuna: 'postgresql://me:geheim@server/studies'}]", "line 2 of the campaign file"),
    ],
)
def test_secret_in_the_campaign_file_is_rejected_in_a_config_map(line: str, place: str) -> None:
    settings = from_mapping({**TREE, **({} if "studies" in line else yaml.safe_load(line))})
    with pytest.raises(
        UserError, match=rf"^{re.escape(place)} must not hold a secret .* the Secret first-store$"
    ) as error:
        manifests_for(Pods(image="i"), settings, f"name: sine\n{line}\n", "first", "a token")
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize("key", ["password", "db_password", "api_key", "access-token"])
def test_secret_among_the_options_of_an_objective_is_rejected(key: str) -> None:
    def with_options(**options: Any) -> list[Any]:
        settings = from_mapping(TREE)
        settings = replace(settings, objective=replace(settings.objective, options=options))
        return manifests_for(Pods(image="i"), settings, "name: sine\n", "first", "a token")

    with pytest.raises(UserError, match=rf"^objective\.options\.judge\.{key} must not hold a secret") as error:
        with_options(judge={key: "geheim"})
    assert "geheim" not in str(error.value)
    assert with_options(stop_token="</s>", **{key: ""})


@pytest.mark.skipif(CRDS is None, reason="needs BBKB_KUBERAY_CRDS, a folder with the operator's CRDs")
@pytest.mark.parametrize("store", ["sqlite", "postgresql://server/campaigns"])
def test_operators_schema_knows_every_key(store: str) -> None:
    job = manifests(store=store)["RayJob"]
    jsonschema.Draft4Validator(_schema("RayJob")).validate(job)
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containerz"] = []
    with pytest.raises(jsonschema.ValidationError, match="containerz"):
        jsonschema.Draft4Validator(_schema("RayJob")).validate(job)


def _schema(kind: str) -> Any:
    """The newest schema of a kind, in which keys that it does not know are errors."""
    for file in Path(str(CRDS)).glob("*.yaml"):
        crd = yaml.load(file.read_text(), yaml.CSafeLoader)  # a megabyte each
        if crd["spec"]["names"]["kind"] == kind:
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            return _close(schema)
    raise AssertionError(f"{CRDS} has no CRD of {kind}")


def _close(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_close(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _close(value) for key, value in schema.items()}
    if strict.pop("x-kubernetes-int-or-string", False):
        strict.pop("type", None)
        strict["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    is_open = "additionalProperties" in strict or strict.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in strict and not is_open:
        strict["additionalProperties"] = False
    return strict
