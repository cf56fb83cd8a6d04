"""Engineering designs with two or three objectives, all minimized.

Problems RE21 to RE37 of Tanabe and Ishibuchi (Applied Soft Computing 89, 2020) but RE36, in which
the last objective is the sum of the violated constraints. The numbers of the formulas are theirs.
A function takes the parameters' values, numbers or arrays of the same length, and returns one value
for each objective.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bbkb.objectives.parameters import Ordered, Parameter, Range
from benchmarks.tables import Floats

Value = Floats | float
Values = Sequence[Value]

_BAR_AREAS = (
    *(0.2, 0.31, 0.4, 0.44, 0.6, 0.62, 0.79, 0.8, 0.88, 0.93, 1.0, 1.2, 1.24, 1.32, 1.4, 1.55, 1.58, 1.6, 1.76, 1.8),
    *(1.86, 2.0, 2.17, 2.2, 2.37, 2.4, 2.48, 2.6, 2.64, 2.79, 2.8, 3.0, 3.08, 3.1, 3.16, 3.41, 3.52, 3.6, 3.72, 3.95),
    *(3.96, 4.0, 4.03, 4.2, 4.34, 4.4, 4.65, 4.74, 4.8, 4.84, 5.0, 5.28, 5.4, 5.53, 5.72, 6.0, 6.16, 6.32, 6.6, 7.11),
    *(7.2, 7.8, 7.9, 8.0, 8.4, 8.69, 9.0, 9.48, 10.27, 11.0, 11.06, 11.85, 12.0, 13.0, 14.0, 15.0),
)
_WIRES = (
    *(0.092, 0.105, 0.12, 0.135, 0.148, 0.162, 0.177, 0.192, 0.207, 0.225, 0.244, 0.263, 0.283, 0.307),
    *(0.331, 0.362, 0.394, 0.4375, 0.5),
)


@dataclass(frozen=True)
class Formula:
    """A problem: its parameters and its function."""

    parameters: tuple[Parameter, ...]
    of: Callable[[Values], Values]


def _violation(*slack: Value) -> Value:
    """The sum of the amounts by which values that must not be negative are."""
    total: Value = sum(np.maximum(-np.asarray(value), 0.0) for value in slack)
    return total


def _four_bar_truss(x: Values) -> Values:
    a, b, c, d = x
    root = np.sqrt(2.0)
    return 200.0 * (2.0 * a + root * b + np.sqrt(c) + d), 0.01 * (2.0 / a + 2.0 * root * (1.0 / b - 1.0 / c) + 2.0 / d)


def _concrete_beam(x: Values) -> Values:
    area, width, height = x
    width = np.maximum(width, 1e-9)
    strength = area * height - 7.735 * area**2 / width - 180.0
    return 29.4 * area + 0.6 * width * height, _violation(strength, 4.0 - height / width)


def _pressure_vessel(x: Values) -> Values:
    shell, head, radius, length = 0.0625 * x[0], 0.0625 * x[1], x[2], x[3]
    cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2
    cost = cost + 3.1661 * shell**2 * length + 19.84 * shell**2 * radius
    volume = np.pi * radius**2 * (length + 4.0 / 3.0 * radius)
    return cost, _violation(shell - 0.0193 * radius, head - 0.00954 * radius, volume - 1296000.0)


def _hatch_cover(x: Values) -> Values:
    flange, beam = x
    bending = 4500.0 / (flange * beam)
    deflection = 56.2e4 / (7e5 * flange * beam**2)
    slack = (1 - bending / 700, 1 - 1800 / beam / 450, 1 - deflection / 1.5, 1 - bending / (7e3 * flange**2))
    return flange + 120.0 * beam, _violation(*slack)


def _coil_spring(x: Values) -> Values:
    coils, diameter, wire = x
    ratio = diameter / wire
    factor = (4.0 * ratio - 1.0) / (4.0 * ratio - 4.0) + 0.615 / ratio
    stiffness = 11.5e6 * wire**4 / (8.0 * coils * diameter**3)
    length, preload = 1000.0 / stiffness + 1.05 * (coils + 2.0) * wire, 300.0 / stiffness
    travel = 700.0 / stiffness
    slack = (
        *(189000.0 - 8.0 * factor * 1000.0 * diameter / (np.pi * wire**3), 14.0 - length, ratio - 3.0, 6.0 - preload),
        *(length - preload - travel - 1.05 * (coils + 2.0) * wire, 1.25 - travel),
    )
    return np.pi**2 / 4.0 * diameter * wire**2 * (coils + 2.0), _violation(*slack)


def _two_bar_truss(x: Values) -> Values:
    a, b, height = x
    long, short = np.sqrt(16.0 + height**2), np.sqrt(1.0 + height**2)
    volume, stress = a * long + b * short, 20.0 * long / (a * height)
    return volume, stress, _violation(0.1 - volume, 1e5 - stress, 1e5 - 80.0 * short / (height * b))


def _welded_beam(x: Values) -> Values:
    weld, length, height, thickness = x
    radius = np.sqrt(length**2 / 4.0 + ((weld + height) / 2.0) ** 2)
    polar = 2.0 * np.sqrt(2.0) * weld * length * (length**2 / 12.0 + ((weld + height) / 2.0) ** 2)
    direct, torsion = 6000.0 / (np.sqrt(2.0) * weld * length), 6000.0 * (14.0 + length / 2.0) * radius / polar
    shear = np.sqrt(direct**2 + direct * torsion * length / radius + torsion**2)
    buckling = 4.013 * 30e6 * height * thickness**3 / 6.0 / 196.0 * (1.0 - height / 28.0 * np.sqrt(30.0 / 48.0))
    cost = 1.10471 * weld**2 * length + 0.04811 * height * thickness * (14.0 + length)
    deflection = 4.0 * 6000.0 * 14.0**3 / (30e6 * thickness * height**3)
    bending = 504000.0 / (thickness * height**2)
    return cost, deflection, _violation(13600.0 - shear, 30000.0 - bending, thickness - weld, buckling - 6000.0)


def _disc_brake(x: Values) -> Values:
    inner, outer, force, surfaces = x
    squares, cubes = outer**2 - inner**2, outer**3 - inner**3
    slack = (
        *(outer - inner - 20.0, 0.4 - force / (3.14 * squares), 1.0 - 2.22e-3 * force * cubes / squares**2),
        2.66e-2 * force * surfaces * cubes / squares - 900.0,
    )
    stopping = 9.82e6 * squares / (force * surfaces * cubes)
    return 4.9e-5 * squares * (surfaces - 1.0), stopping, _violation(*slack)


def _crashworthiness(x: Values) -> Values:
    a, b, c, d, e = x
    mass = 1640.2823 + 2.3573285 * a + 2.3220035 * b + 4.5688768 * c + 7.7213633 * d + 4.4559504 * e
    linear = 6.5856 + 1.15 * a - 1.0427 * b + 0.9738 * c + 0.8364 * d
    products = -0.3695 * a * d + 0.0861 * a * e + 0.3628 * b * d
    acceleration = linear + products - 0.1106 * a**2 - 0.3437 * c**2 + 0.1764 * d**2
    intrusion = -0.0551 + 0.0181 * a + 0.1024 * b + 0.0421 * c - 0.0073 * a * b + 0.024 * b * c - 0.0118 * b * d
    intrusion = intrusion - 0.0204 * c * d - 0.008 * c * e - 0.0241 * b**2 + 0.0109 * d**2
    return mass, acceleration, intrusion


def _speed_reducer(x: Values) -> Values:
    face, module, teeth, first, second, thin, thick = x
    weight = 0.7854 * face * module**2 * (10.0 / 3.0 * teeth**2 + 14.933 * teeth - 43.0934)
    weight = weight - 1.508 * face * (thin**2 + thick**2) + 7.477 * (thin**3 + thick**3)
    weight = weight + 0.7854 * (first * thin**2 + second * thick**2)
    stress = np.sqrt((745.0 * first / (module * teeth)) ** 2 + 1.69e7) / (0.1 * thin**3)
    other = np.sqrt((745.0 * second / (module * teeth)) ** 2 + 1.575e8) / (0.1 * thick**3)
    slack = (
        *(1 / 27 - 1 / (face * module**2 * teeth), 1 / 397.5 - 1 / (face * module**2 * teeth**2)),
        *(1 / 1.93 - first**3 / (module * teeth * thin**4), 1 / 1.93 - second**3 / (module * teeth * thick**4)),
        *(40.0 - module * teeth, 12.0 - face / module, face / module - 5.0, first - 1.5 * thin - 1.9),
        *(second - 1.1 * thick - 1.9, 1300.0 - stress, 1100.0 - other),
    )
    return weight, stress, _violation(*slack)


def _rocket_injector(x: Values) -> Values:
    a, b, c, d = x
    hottest = 0.692 + 0.477 * a - 0.687 * b - 0.08 * c - 0.065 * d - 0.167 * a**2 - 0.0129 * a * b + 0.0796 * b**2
    hottest = hottest - 0.0634 * a * c - 0.0257 * b * c + 0.0877 * c**2 - 0.0521 * a * d + 0.00156 * b * d
    length = 0.153 - 0.322 * a + 0.396 * b + 0.424 * c + 0.0226 * d + 0.175 * a**2 + 0.0185 * a * b - 0.0701 * b**2
    length = length - 0.251 * a * c + 0.179 * b * c + 0.015 * c**2 + 0.0134 * a * d + 0.0296 * b * d + 0.0752 * c * d
    tip = 0.37 - 0.205 * a + 0.0307 * b + 0.108 * c + 1.019 * d - 0.135 * a**2 + 0.0141 * a * b + 0.0998 * b**2
    tip = tip + 0.208 * a * c - 0.0301 * b * c - 0.226 * c**2 + 0.353 * a * d - 0.0497 * c * d - 0.423 * d**2
    tip = tip + a**2 * (0.202 * b - 0.281 * c) - b**2 * (0.342 * a + 0.245 * c) + 0.281 * b * c**2
    tip = tip - 0.184 * a * d**2 - 0.281 * a * b * c
    return hottest + 0.00198 * c * d + 0.0184 * d**2, length + 0.0192 * d**2, tip


def _ranges(*bounds: tuple[float, float]) -> tuple[Parameter, ...]:
    return tuple(Range(low, high) for low, high in bounds)


def _whole(low: int, high: int) -> Range:
    return Range(low, high, integer=True)


_ROOT = float(np.sqrt(2.0))
DESIGNS: Mapping[str, Formula] = {
    "re21": Formula(_ranges((1.0, 3.0), (_ROOT, 3.0), (_ROOT, 3.0), (1.0, 3.0)), _four_bar_truss),
    "re22": Formula((Ordered(_BAR_AREAS), *_ranges((0.0, 20.0), (0.0, 40.0))), _concrete_beam),
    "re23": Formula((_whole(1, 100), _whole(1, 100), *_ranges((10.0, 200.0), (10.0, 240.0))), _pressure_vessel),
    "re24": Formula(_ranges((0.5, 4.0), (0.5, 50.0)), _hatch_cover),
    "re25": Formula((_whole(1, 70), *_ranges((0.6, 3.0)), Ordered(_WIRES)), _coil_spring),
    "re31": Formula(_ranges((1e-5, 100.0), (1e-5, 100.0), (1.0, 3.0)), _two_bar_truss),
    "re32": Formula(_ranges((0.125, 5.0), (0.1, 10.0), (0.1, 10.0), (0.125, 5.0)), _welded_beam),
    "re33": Formula(_ranges((55.0, 80.0), (75.0, 110.0), (1000.0, 3000.0), (11.0, 20.0)), _disc_brake),
    "re34": Formula(_ranges(*((1.0, 3.0),) * 5), _crashworthiness),
    "re35": Formula(
        (*_ranges((2.6, 3.6), (0.7, 0.8)), _whole(17, 28), *_ranges((7.3, 8.3), (7.3, 8.3), (2.9, 3.9), (5.0, 5.5))),
        _speed_reducer,
    ),
    "re37": Formula(_ranges(*((0.0, 1.0),) * 4), _rocket_injector),
}
