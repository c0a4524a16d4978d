"""The matrix equation of matrix_equation.json in NumPy, in double precision."""

import numpy as np


def equation(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A^2 B B^T C B for A, C of n x n and B of n x m."""
    a, b, c = (inputs[name].astype(np.float64) for name in "ABC")
    return {"result": a @ a @ (b @ b.T) @ (c @ b)}
