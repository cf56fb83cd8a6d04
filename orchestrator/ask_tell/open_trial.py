"""`OpenTrial`: a configuration to evaluate, as `Optimizer.ask` returns it."""

from collections.abc import Mapping
from typing import Any, Protocol

from objectives.conditions import Scalar


class TakesReports(Protocol):
    """The methods of `Optimizer` that a trial calls."""

    def last_step(self, configuration: Mapping[str, Scalar]) -> int:
        """See `Optimizer.last_step`."""

    def report(self, configuration: Mapping[str, Scalar], value: float, step: int) -> bool:
        """See `Optimizer.report`."""

    def tell(self, configurations: Mapping[str, Scalar], values: float | Mapping[str, float]) -> None:
        """See `Optimizer.tell`."""

    def fail(self, configurations: Mapping[str, Scalar]) -> None:
        """See `Optimizer.fail`."""

    def stop(self, configuration: Mapping[str, Scalar]) -> None:
        """See `Optimizer.stop`."""


class OpenTrial(dict[str, Scalar]):
    """The parameters by name, with the methods that report their evaluation.

    A copy or a pickle of it is a plain dictionary, which the methods of `Optimizer` accept too.

    Args:
        parameters: the parameters by name.
        optimizer: the optimizer whose `ask` returned the trial.

    >>> from bbkb import Optimizer, Range
    >>> optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize")
    >>> (trial,) = optimizer.ask()
    >>> trial.tell((trial["x"] - 0.3) ** 2)
    """

    def __init__(self, parameters: Mapping[str, Scalar], optimizer: TakesReports) -> None:
        super().__init__(parameters)
        self._optimizer = optimizer

    @property
    def parameters(self) -> dict[str, Scalar]:
        """The parameters by name, as a plain dictionary."""
        return dict(self)

    @property
    def last_step(self) -> int:
        """The largest step that the training has reported, after which it continues; 0 for a new
        training."""
        return self._optimizer.last_step(self)

    def report(self, value: float, step: int) -> bool:
        """Report a value of the training before its end, as `Optimizer.report` does.

        Args:
            value: the value at the step, on the scale of `tell`.
            step: the step, counted from 1.

        Returns:
            False if this training is to be stopped now.
        """
        return self._optimizer.report(self, value, step)

    def tell(self, value: float | Mapping[str, float]) -> None:
        """Report the result, as `Optimizer.tell` does.

        Args:
            value: a number, or a mapping of metrics if there are several objectives or constraints.
        """
        self._optimizer.tell(self, value)

    def fail(self) -> None:
        """Report that the evaluation failed. `ask` does not return these parameters again."""
        self._optimizer.fail(self)

    def stop(self) -> None:
        """End the training permanently before its last step; see `Optimizer.stop`."""
        self._optimizer.stop(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
