"""The number of threads of linear algebra."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import scipy
from threadpoolctl import ThreadpoolController, threadpool_limits

_entrance = threading.RLock()


def limit_threads(threads: int | None) -> threadpool_limits:
    """Limit the threads of NumPy's and SciPy's BLAS until the process ends.

    The bandit core imports SciPy's packages when it first uses them, and a limit holds for loaded
    libraries only; so a limit loads SciPy's BLAS. None: no limit.
    """
    if threads is not None:
        vars(scipy.linalg)
    return threadpool_limits(threads, user_api="blas")


@contextmanager
def blas_threads(number: int) -> Iterator[None]:
    """Compute with this number of threads of NumPy's and SciPy's BLAS. More than one are slower for
    small matrices, and many times slower on a busy machine.

    Other threads of the program wait to enter, because the limit holds for the whole process and
    the thread that sets it must restore the earlier one.
    """
    with _entrance, _controller().limit(limits=number, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    vars(scipy.linalg)  # a controller knows the loaded libraries only
    return ThreadpoolController()
