"""Tests of workers/on_ray/packing.py: the number of evaluations that fit on nodes, counted as Ray
packs them."""

import itertools
import time
from collections.abc import Iterator

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from bbkb.workers.on_ray.packing import Need, Node, fits, slots_on

REFUSED_SECONDS = 2.0  # without an answer, after which Ray has no room for a group
AMOUNTS = st.sampled_from([0.0, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0])
NODES = st.lists(
    st.fixed_dictionaries({"CPU": st.integers(0, 6).map(float), "GPU": st.integers(0, 3).map(float)}), max_size=3
)


def test_share_below_one_comes_from_a_single_graphics_processor() -> None:
    assert slots_on([{"CPU": 64.0, "GPU": 8.0}], Need(cpus=1.0, gpus=0.4)) == 16
    assert slots_on([{"CPU": 64.0, "GPU": 8.0}], Need(cpus=1.0, gpus=1 / 7)) == 56
    assert slots_on([{"CPU": 64.0, "GPU": 8.0}], Need(cpus=1.0, gpus=3.0)) == 2


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("amount", [0.3, 0.4, 2 / 3, 1 / 7, 0.1429, 2.0])
def test_raylet_accepts_exactly_the_counted_slots(amount: float) -> None:
    node = {"CPU": 4.0, "GPU": 2.0}
    assert len(accepted({"GPU": amount}, most=30)) == slots_on([node], Need(gpus=amount))
    assert len(accepted({"CPU": amount}, most=30)) == slots_on([node], Need(cpus=amount))


def accepted(bundle: dict[str, float], most: int) -> list[PlacementGroup]:
    """Groups of one bundle that the cluster takes at the same time, at most this many; they are
    removed again."""
    groups: list[PlacementGroup] = []
    before = ray.available_resources()
    while len(groups) < most:
        group = placement_group([bundle])
        if not group.wait(REFUSED_SECONDS):
            remove_placement_group(group)
            break
        groups.append(group)
    for group in groups:
        remove_placement_group(group)
    while any(ray.available_resources().get(name, 0.0) < before[name] for name in bundle):
        time.sleep(0.05)
    return groups


@given(NODES, AMOUNTS, AMOUNTS, st.integers(1, 3), st.booleans())
def test_count_is_the_largest_number_that_fits_one_by_one(
    nodes: list[Node], cpus: float, gpus: float, machines: int, is_spread: bool
) -> None:
    need = Need(cpus=cpus + 0.5, gpus=gpus, machines=machines, is_spread=is_spread)
    counted = slots_on(nodes, need)
    assert fits(nodes, [need] * counted)
    assert not fits(nodes, [need] * (counted + 1))


@given(NODES, st.lists(AMOUNTS, max_size=5))
def test_fits_accepts_only_needs_that_some_assignment_allows(nodes: list[Node], amounts: list[float]) -> None:
    needs = [Need(cpus=1.0, gpus=amount) for amount in amounts]
    if fits(nodes, needs):
        assert any(map(has_room, assignments(nodes, amounts)))


def assignments(nodes: list[Node], amounts: list[float]) -> Iterator[list[tuple[Node, list[float]]]]:
    """Yield every way to divide the amounts among the nodes."""
    for numbers in itertools.product(range(len(nodes)), repeat=len(amounts)):
        yield [
            (node, [amount for amount, at in zip(amounts, numbers, strict=True) if at == number])
            for number, node in enumerate(nodes)
        ]


def has_room(assignment: list[tuple[Node, list[float]]]) -> bool:
    """Return whether each node can hold its attempts, by bounds that any packing keeps."""
    return all(
        len(amounts) <= node["CPU"]
        and sum(amounts) <= node["GPU"] + 1e-9
        and sum(amount > 0.5 for amount in amounts if amount < 1.0) + sum(a for a in amounts if a >= 1.0) <= node["GPU"]
        for node, amounts in assignment
    )


def test_parts_of_one_evaluation_take_nodes_of_their_own_unless_they_may_share_one() -> None:
    nodes: list[Node] = [{"CPU": 4.0}, {"CPU": 4.0}]
    assert slots_on(nodes, Need(cpus=3.0, machines=2)) == 1
    assert slots_on(nodes, Need(cpus=2.0, machines=2)) == 2
    assert slots_on(nodes[:1], Need(cpus=2.0, machines=2)) == 0
    assert slots_on(nodes[:1], Need(cpus=2.0, machines=2, is_spread=False)) == 1
    assert slots_on([{"CPU": 8.0}, {"CPU": 1.0}], Need(cpus=1.0, machines=2)) == 1


def test_memory_counts_when_needs_differ() -> None:
    nodes: list[Node] = [{"CPU": 8.0, "memory": 10.0}]
    assert fits(nodes, [Need(cpus=1.0, memory=6.0), Need(cpus=1.0, memory=4.0)])
    assert not fits(nodes, [Need(cpus=1.0, memory=6.0), Need(cpus=1.0, memory=5.0)])
