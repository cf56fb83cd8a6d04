"""The number of threads of linear algebra."""

import scipy
from threadpoolctl import threadpool_limits


def limit_threads(threads: int | None) -> threadpool_limits:
    """Limit the threads of NumPy's and SciPy's BLAS, as a context or until the process ends.

    The bandit core imports SciPy's packages when it first uses them, and a limit holds for loaded
    libraries only; so a limit loads SciPy's BLAS. None: no limit.
    """
    if threads is not None:
        vars(scipy.linalg)
    return threadpool_limits(threads, user_api="blas")
