"""A simulated shop that orders goods: the noisy cost of a day.

Ten to thirty customers want one item each day. When the stock falls below `reorder` boxes of ten
items, the shop orders up to `level` boxes, which arrive three days later.
"""

import numpy as np

DAYS = 30
BOX = 10  # items
DELIVERY = 3  # days
ORDER, STORAGE, MISSED = 40.0, 0.3, 6.0  # of an order, of an item kept overnight, of a lost sale


def cost(reorder, level, seed):
    """Return the mean cost of a day; `seed` draws the customers."""
    demands = np.random.default_rng(seed).integers(10, 31, DAYS)
    stock = level * BOX
    arriving = [0] * DELIVERY
    total = 0.0
    for demand in demands:
        stock += arriving.pop(0)
        total += MISSED * max(0, demand - stock)
        stock = max(0, stock - demand)
        total += STORAGE * stock
        on_the_way = sum(arriving)
        is_low = stock + on_the_way < reorder * BOX
        order = level * BOX - stock - on_the_way if is_low else 0
        total += ORDER * (order > 0)
        arriving.append(order)
    return total / DAYS
