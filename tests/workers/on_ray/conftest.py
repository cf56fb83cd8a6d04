"""Fixtures of the tests on Ray."""

import pytest

from bbkb.workers.on_ray import internals
from bbkb.workers.on_ray.places import SHARES


@pytest.fixture
def without_killed_campaigns(ray_cluster: str) -> None:
    """Remove the shares of campaigns that other tests have killed from the cluster."""
    for campaign in internals.keys("", namespace=SHARES):
        internals.delete(campaign, namespace=SHARES)
