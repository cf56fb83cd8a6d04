"""The manifests that Kubernetes with the KubeRay operator accepts, as far as campaigns need: keys,
types and rules.

The keys of a RayJob are those of `ray.io/v1` (KubeRay 1.6) that campaigns use; pods, Secret,
ConfigMap and PersistentVolumeClaim are checked against Kubernetes' schema. Other keys are rejected
everywhere, because an API server silently drops unknown ones.
"""

import functools
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from jsonschema import Draft202012Validator, ValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from ray.scripts.scripts import start
from referencing import Registry
from referencing.jsonschema import DRAFT202012

Manifest = dict[str, Any]

KUBERNETES = "1.34"
_SCHEMAS = Path(str(files("kubernetes_validate"))) / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
LONGEST_JOB_NAME = 47
_FIRST_WITH_TOKEN = (2, 52)
_RESOURCES = {"cpu", "memory", "nvidia.com/gpu", "storage"}
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123
_RAY_OPTIONS = {option.removeprefix("--") for parameter in start.params for option in parameter.opts}


def check(manifests: Iterable[Manifest]) -> None:
    """Raises ValueError that names the first rejected key or value."""
    items = list(manifests)
    for manifest in items:
        if manifest.get("kind") == "RayJob":
            _RayJob.model_validate(manifest)
        else:
            _check_known(manifest)
            _require(_SUBDOMAIN.fullmatch(manifest["metadata"]["name"]), f"name {manifest['metadata']['name']!r}")
            _check_resources(manifest.get("spec", {}).get("resources", {}))
    names = {(entry["kind"], entry["metadata"]["name"]) for entry in items}
    for job in (entry for entry in items if entry["kind"] == "RayJob"):
        for reference in _references(job["spec"]["rayClusterSpec"]):
            _require(reference in names, f"{reference} is not among the manifests")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


def _label(name: str) -> str:
    _require(len(name) <= 63 and _LABEL.fullmatch(name), f"name {name!r}: RFC 1035")
    return name


def _pod_template(template: Manifest) -> Manifest:
    _require(set(template) <= {"metadata", "spec"}, f"unknown key in a pod template: {sorted(template)}")
    _check_known({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template})
    for container in template["spec"]["containers"]:
        _check_resources(container.get("resources", {}))
    return template


def _check_resources(resources: Manifest) -> None:
    for amounts in resources.values():
        for name, amount in amounts.items():
            _require(name in _RESOURCES, f"resource {name!r}")
            _require(isinstance(amount, str) and _QUANTITY.fullmatch(amount), f"{name}: {amount!r} is no quantity")


def _ray_options(options: dict[str, str]) -> dict[str, str]:
    _require(set(options) <= _RAY_OPTIONS, f"options that `ray start` does not know: {sorted(set(options))}")
    return options


def _runtime_environment(text: str) -> str:
    _require(isinstance(yaml.safe_load(text), dict), "runtimeEnvYAML must be a mapping")
    return text


class _Group(_Model):
    template: Annotated[Manifest, AfterValidator(_pod_template)]
    ray_start_params: Annotated[dict[str, str], AfterValidator(_ray_options)] = {}


class _Workers(_Group):
    group_name: Annotated[str, AfterValidator(_label)]
    replicas: Annotated[int, Field(ge=0)]
    min_replicas: Annotated[int, Field(ge=0)]
    max_replicas: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def is_a_range(self) -> Self:
        _require(self.min_replicas <= self.replicas <= self.max_replicas, "minReplicas <= replicas <= maxReplicas")
        return self


class _Authentication(_Model):
    mode: Literal["token"]
    secret_name: str


class _Cluster(_Model):
    head_group_spec: _Group
    worker_group_specs: Annotated[list[_Workers], Field(min_length=1)]
    ray_version: str
    auth_options: _Authentication

    @model_validator(mode="after")
    def has_a_ray_that_knows_tokens(self) -> Self:
        match = re.match(r"(\d+)\.(\d+)", self.ray_version)
        version = (int(match[1]), int(match[2])) if match else (0, 0)
        _require(version >= _FIRST_WITH_TOKEN, f"rayVersion must be >= 2.52 for tokens, got {self.ray_version}")
        return self


class _JobSpec(_Model):
    entrypoint: Annotated[str, Field(min_length=1)]
    ray_cluster_spec: _Cluster
    submission_mode: Literal["K8sJobMode"]
    runtime_environment: Annotated[str, AfterValidator(_runtime_environment), Field(alias="runtimeEnvYAML")] = "{}"
    backoff_limit: Annotated[int, Field(ge=0)] = 0
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)] = 0
    shutdown_after_job_finishes: Literal[True]  # a ttl needs it


class _Metadata(_Model):
    name: Annotated[str, AfterValidator(_label), Field(max_length=LONGEST_JOB_NAME)]


class _RayJob(_Model):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: _Metadata
    spec: _JobSpec


def _references(cluster: Manifest) -> list[tuple[str, str]]:
    """Objects that a cluster refers to must exist; the Secret of a database's variables is the
    user's."""
    volumes = cluster["headGroupSpec"]["template"]["spec"].get("volumes", [])
    mounts = {entry["name"] for entry in cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    _require(mounts <= {volume["name"] for volume in volumes}, f"volumes that are not there: {sorted(mounts)}")
    return [
        ("Secret", cluster["authOptions"]["secretName"]),
        *(("ConfigMap", volume["configMap"]["name"]) for volume in volumes if "configMap" in volume),
        *(
            ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
            for volume in volumes
            if "persistentVolumeClaim" in volume
        ),
    ]


def _check_known(manifest: Manifest) -> None:
    _require({"apiVersion", "kind", "metadata"} <= set(manifest), f"not a manifest: {sorted(manifest)}")
    _check_known_text(json.dumps(manifest))


@functools.cache
def _check_known_text(text: str) -> None:
    manifest = json.loads(text)
    version = manifest["apiVersion"].replace("/", "-")
    file = _SCHEMAS / f"{manifest['kind'].lower()}-{version}.json"
    _require(file.is_file(), f"Kubernetes {KUBERNETES} knows no {manifest['kind']} of {manifest['apiVersion']}")
    try:
        Draft202012Validator(json.loads(file.read_text(encoding="utf-8")), registry=_definitions()).validate(manifest)
    except ValidationError as error:
        raise ValueError(f"{manifest['kind']}: {error.message}") from error


@functools.cache  # 1.5 MB
def _definitions() -> Registry[Any]:
    contents = json.loads((_SCHEMAS / "_definitions.json").read_text(encoding="utf-8"))
    return (DRAFT202012.create_resource(contents) @ Registry()).crawl()


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ValueError(message)
