"""Logistic regression with a quadratic penalty, by Newton's method."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_PENALTY = 3.0
_STEPS = 30


def logistic(value: Array) -> Array:
    """Return the logistic function of each element."""
    result: Array = 1 / (1 + np.exp(-value))
    return result


def regress(features: Array, labels: Array, counts: Array | None = None) -> tuple[float, Array]:
    """Return the bias and the weights of a logistic regression. The penalty applies to standardised features.

    `features` is an array of shape (examples, features), and `labels` has zero or one for each example. `counts` says
    how many times each example counts; None counts each once.
    """
    times = np.ones(len(labels)) if counts is None else counts
    mean, deviation = features.mean(axis=0), features.std(axis=0) + 1e-9
    columns = np.column_stack([np.ones(len(labels)), (features - mean) / deviation])
    penalties = np.diag([0.0, *[_PENALTY] * features.shape[1]])
    found = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        likely = logistic(columns @ found)
        gradient = columns.T @ (times * (labels - likely)) - penalties @ found
        curvature = (columns.T * (times * likely * (1 - likely))) @ columns + penalties
        found = found + np.linalg.solve(curvature, gradient)
    slopes = found[1:] / deviation
    return float(found[0] - slopes @ mean), slopes
