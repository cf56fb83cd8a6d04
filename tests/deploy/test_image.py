"""deploy/Dockerfile, built with buildah on a base made from Debian's packages: a campaign on Ray
runs in it.

No registry is needed. BBKB_IMAGE_BASE names a tar with a root file system (Python 3.11 or newer
with venv, wget) to begin with instead of one that mmdebstrap makes.
"""

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bbkb.orchestrator import __version__
from tests.deploy.namespaces import missing

REPOSITORY = Path(__file__).parents[2]
_ABSENT = missing("buildah", "mmdebstrap")
_PACKAGES = "python3,python3-venv,ca-certificates,wget"
# The machine's certificates and the address of its package index. A build sees them, but the image
# does not contain them.
_OF_THE_MACHINE = ("/etc/ssl/certs", "/etc/pip.conf")
CAMPAIGN = """
name: branin
objective: {name: branin}
candidates: {size: 64}
budget: {evaluations: 6}
workers: {count: 2}
"""


class Buildah:
    """Its commands, with images and containers in a folder of their own; no daemon and no
    registry."""

    def __init__(self, folder: Path) -> None:
        self._storage = ["--root", str(folder / "root"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]

    def __call__(self, *arguments: str) -> str:
        """Return the output of the command. Raises CalledProcessError, after printing its
        errors."""
        command = ["buildah", *self._storage, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout[-4000:], done.stderr[-4000:])
            done.check_returncode()
        return done.stdout.strip()


@pytest.fixture(scope="module")
def container() -> Iterator[tuple[Buildah, str]]:
    """A container of the built image."""
    folder = Path(tempfile.mkdtemp(prefix="bbkb-image", dir="/var/tmp"))
    buildah = Buildah(folder)
    mounts = [f"--volume={path}:{path}:ro" for path in _OF_THE_MACHINE if Path(path).exists()]
    try:
        base = buildah("from", "scratch")
        buildah("add", "--quiet", base, str(_base(folder)), "/")
        buildah("commit", "--quiet", base, "localhost/base")
        options = ["--isolation=chroot", "--network=host", "--build-arg=BASE=localhost/base", *mounts]
        buildah("build", *options, "--file", "deploy/Dockerfile", "--tag", "localhost/bbkb", str(REPOSITORY))
        yield buildah, buildah("from", "localhost/bbkb")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _base(folder: Path) -> Path:
    base = os.environ.get("BBKB_IMAGE_BASE")
    if base:
        return Path(base)
    archive = folder / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(archive)]
    subprocess.run([*command, "http://deb.debian.org/debian"], capture_output=True, check=True)
    return archive


def output_inside(container: tuple[Buildah, str], script: str) -> str:
    """Return the output of a shell in the container."""
    buildah, name = container
    return buildah("run", "--isolation=chroot", name, "--", "bash", "-c", script)


@pytest.mark.deploy
@pytest.mark.timeout(3600)
@pytest.mark.skipif(bool(_ABSENT), reason=_ABSENT)
def test_campaign_on_ray_runs_in_the_image_as_an_ordinary_user_without_a_compiler(
    container: tuple[Buildah, str],
) -> None:
    assert output_inside(container, "id -u; bbkb --version").split("\n") == ["1000", f"bbkb {__version__}"]
    assert output_inside(container, "for name in cc gcc g++ clang make ld; do command -v $name; done; true") == ""
    assert output_inside(container, "bash -lc 'command -v bbkb ray wget'").count("\n") == 2  # in a login shell too
    output_inside(container, f"cat > campaign.yaml <<'EOF'\n{CAMPAIGN}\nEOF\nbbkb run campaign.yaml --run first")
    assert '"succeeded": 6' in output_inside(
        container, "bbkb status runs/first --json; bbkb verify runs/first >/dev/null"
    )


def test_package_of_the_image_has_an_exact_version_within_the_projects_ranges() -> None:
    lines = (REPOSITORY / "deploy" / "requirements.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.]+", str(package.specifier)) for package in pinned)
    versions = {(package.name.lower(), str(package.specifier).removeprefix("==")) for package in pinned}
    for requirement in _own_requirements():
        of_it = [version for name, version in versions if name == requirement.name.lower()]
        assert of_it
        assert all(requirement.specifier.contains(version) for version in of_it)


def _own_requirements() -> list[Requirement]:
    """Return the requirements of the project itself."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [Requirement(text) for text in (*project["dependencies"], *extras["postgresql"], *extras["parquet"])]
