"""A program to tune: gradient descent with momentum on Rosenbrock's valley. Prints log10 of the
value it ends at."""

import argparse
import json
import math
import os
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: 0.5 + 0.5 * math.cos(math.pi * progress),
    "linear": lambda progress: 1.0 - progress,
}


def descend(learning_rate: float, momentum: float, schedule: str, steps: int) -> float:
    """log10 of (1 - x)² + 100 (y - x²)² after `steps` steps from (-1, 1), within [-12, 6]."""
    x, y, speed_x, speed_y = -1.0, 1.0, 0.0, 0.0
    for step in range(steps):
        rate = learning_rate * SCHEDULES[schedule](step / steps)
        speed_x = momentum * speed_x - rate * (-2 * (1 - x) - 400 * x * (y - x * x))
        speed_y = momentum * speed_y - rate * 200 * (y - x * x)
        x, y = x + speed_x, y + speed_y
        if max(abs(x), abs(y)) > 1e3:  # it diverges: bad, and that is a result too
            return 6.0
    return min(6.0, max(-12.0, math.log10((1 - x) ** 2 + 100 * (y - x * x) ** 2 + 1e-12)))


def main() -> None:
    """Read parameters from the command line and the environment, print the value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--momentum", type=float, required=True)
    parser.add_argument("--schedule", choices=SCHEDULES, required=True)
    arguments = parser.parse_args()
    parameters = json.loads(os.environ.get("BBKB_PARAMETERS", "{}"))
    print(descend(arguments.learning_rate, arguments.momentum, arguments.schedule, parameters.get("steps", 200)))


if __name__ == "__main__":
    main()
