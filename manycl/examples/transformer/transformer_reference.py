"""The transformer layer of transformer.json in NumPy, in double precision."""

import numpy as np


def attention(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Z{h} = softmax(Q K^T / beta) V W for every head h, with Q, K, V = X WQ{h}, X WK{h}, X WV{h}; all beta x beta."""
    array = {name: value.astype(np.float64) for name, value in inputs.items()}
    x = array["X"]
    heads = sum(name.startswith("WQ") for name in array)
    outputs = {}
    for h in range(heads):
        q, k, v = (x @ array[f"{name}{h}"] for name in ("WQ", "WK", "WV"))
        scores = q @ k.T / len(x)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        outputs[f"Z{h}"] = weights @ v @ array[f"W{h}"]
    return outputs
