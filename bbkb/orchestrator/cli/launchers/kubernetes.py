"""A campaign as a RayJob of KubeRay, the output of `bbkb launch kuberay`.

This module checks rules of the operator that its schema does not contain: names must conform to RFC
1035 (section 2.3.1), and be short enough for the names that the operator derives from them.
"""

import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import yaml

from bbkb.orchestrator.campaign.settings import Settings, leaves, plain
from bbkb.orchestrator.cli.launchers.slurm import grace_seconds
from bbkb.orchestrator.cli.launchers.writing import Setting, check_node, count_setting, places_of, render
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.wording import plural
from bbkb.workers.packing import RAY_SETTINGS

Manifest = dict[str, Any]  # a manifest or part of one, in Kubernetes' format

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 47  # of a RayJob, because the operator appends to it
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?")
_COMPONENT = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?/)?{_COMPONENT}(/{_COMPONENT})*(:\w[\w.-]{{0,127}})?(@[a-z0-9]+:[0-9a-f]{{32,}})?"
)
_SECRET_KEY = re.compile(r"(password|passwd|secret|(api|auth|access|bearer)[_-]?(key|token))$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The requested resources.

    Raises:
        UserError: if a value is not in Kubernetes' format.
    """

    image: str  # the container image of all pods
    pods: int = 1  # the number of workers
    cpus: int = 1  # processor cores of a worker
    gpus: int = 0  # graphics processors of a worker
    memory: str = "4Gi"  # memory of a worker, in Kubernetes' format
    storage: str = "5Gi"  # disk space for the results, in Kubernetes' format

    def __post_init__(self) -> None:
        for name, value, least in (("pods", self.pods, 1), ("cpus", self.cpus, 1), ("gpus", self.gpus, 0)):
            if value < least:
                raise UserError(f"--{name} must be >= {least}, got {value}")
        if not _IMAGE.fullmatch(self.image):
            raise UserError(f"--image must be an image such as registry.example/bbkb:1, got {self.image!r}")
        for name, quantity in (("memory", self.memory), ("storage", self.storage)):
            if not _QUANTITY.fullmatch(quantity) or not re.search("[1-9]", quantity):
                raise UserError(f"--{name} must be a positive Kubernetes quantity such as 4Gi, got {quantity!r}")

    @property
    def nodes(self) -> list[dict[str, float]]:
        """The resources of the workers, by Ray's names."""
        return [{"CPU": float(self.cpus), "GPU": float(self.gpus)}] * self.pods


def manifests_for(pods: Pods, settings: Settings, campaign: str, run: str, token: str) -> list[Manifest]:
    """Return a Secret with `token`, a ConfigMap with the text of the campaign file, a
    PersistentVolumeClaim (for SQLite) and the RayJob.

    Raises UserError if the run's name is not valid in Kubernetes, or a pod cannot hold an
    evaluation.
    """
    if not _NAME.fullmatch(run) or len(run) > _LONGEST_NAME:
        raise UserError(
            f"--run must have lower-case letters, digits and hyphens, first a letter, last no hyphen, and at most "
            f"{_LONGEST_NAME} characters on Kubernetes, got {run!r}"
        )
    # the file becomes a ConfigMap, which many can read
    for number, line in enumerate(campaign.splitlines(), 1):
        if redact(line) != line:
            raise UserError(
                f"line {number} of the campaign file must not hold a secret on Kubernetes, because many can read the "
                f"ConfigMap of the campaign file: write ${{VAR}} instead, and put VAR into the Secret {run}-store"
            )
    for key, value in leaves(plain(settings)["objective"].get("options") or {}):
        if _SECRET_KEY.search(key) and isinstance(value, str) and value:
            raise UserError(
                f"objective.options.{key} must not hold a secret on Kubernetes, where the file is a ConfigMap that "
                "many can read: let the objective read it from an environment variable or a file of the image"
            )
    is_file = settings.store == "sqlite"
    values = {
        "pods": pods,
        "run": run,
        "count": workers_on(pods, settings),
        "grace": grace_seconds(settings.workers.timeout_seconds),
        "is_file": is_file,
        "needs_variables": not is_file,
        "environment": RAY_SETTINGS,
        "ray_version": metadata.version("ray"),
    }
    secret, config, *others = yaml.safe_load_all(render("kuberay.yaml.j2", values))
    secret["stringData"] = {"auth_token": token}
    config["data"] = {"campaign.yaml": campaign}
    return [secret, config, *others]


def as_yaml(manifests: list[Manifest]) -> str:
    """Return the manifests as one file for `kubectl apply`."""
    return yaml.safe_dump_all(manifests, sort_keys=False, default_flow_style=False, width=120)


def workers_on(pods: Pods, settings: Settings) -> int:
    """Return the number of parallel evaluations. Raises UserError if a pod cannot hold one."""
    check_node(settings, cpus=pods.cpus, gpus=pods.gpus, several="pods")
    return places_of(settings, pods.nodes, several="pods")


def reasons(pods: Pods, settings: Settings, run: str) -> tuple[Setting, ...]:
    """Return the settings in the manifests with their reasons."""
    grace = grace_seconds(settings.workers.timeout_seconds)
    reason = "workers.timeout_seconds" if settings.workers.timeout_seconds else "no workers.timeout_seconds"
    store = (
        "PersistentVolumeClaim" if settings.store == "sqlite" else f"a database; Secret {run}-store has its variables"
    )
    asked = f"{plural(pods.pods, 'pod')} of {plural(pods.cpus, 'CPU')}"
    return (
        count_setting(settings, workers_on(pods, settings), asked),
        Setting("terminationGracePeriodSeconds", str(grace), f"{reason}: running evaluations may end"),
        Setting("store", store, "outlives the pods: a job that is tried again resumes the run"),
    )
