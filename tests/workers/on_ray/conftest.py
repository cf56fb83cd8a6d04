"""Fixtures of the tests on Ray."""

import pytest
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_list

from bbkb.workers.on_ray.sharing import SHARES


@pytest.fixture
def without_killed_campaigns(ray_cluster: str) -> None:
    """Remove the shares of campaigns that other tests have killed from the cluster."""
    for campaign in _internal_kv_list("", namespace=SHARES):
        _internal_kv_del(campaign, namespace=SHARES)
