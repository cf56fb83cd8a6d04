"""Fixtures of the tests on Ray."""

import pytest

from bbkb.workers.on_ray import head_store
from bbkb.workers.on_ray.sharing import SHARES


@pytest.fixture
def without_killed_campaigns(ray_cluster: str) -> None:
    """Remove the shares of campaigns that other tests have killed from the cluster."""
    for campaign in head_store.keys("", namespace=SHARES):
        head_store.delete(campaign, namespace=SHARES)
