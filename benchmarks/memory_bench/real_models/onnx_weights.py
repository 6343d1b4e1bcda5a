"""Reads the weights of a BERT encoder from its ONNX export, under the names that Hugging Face gives them.

An export of PyTorch keeps the names of embeddings, norms and biases. A matrix loses its name and is stored transposed,
as `x @ W.T` becomes one `MatMul` node with the transposed matrix. The bias that the next node adds still has its name,
so the matrix gets the bias's name with "weight" in place of "bias".
"""

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Weights = dict[str, NDArray[np.float32]]
_NAMED = ("embeddings.", "encoder.")
_BIAS = ".bias"


def read_encoder(export: bytes) -> Weights:
    """Return the weights of the encoder by their Hugging Face names; a matrix has the shape (outputs, inputs).

    Raises:
        ValueError: the bytes are no ONNX model, or the model has no layer of a BERT encoder.
    """
    try:
        graph = onnx.load_from_string(export).graph
    except Exception as error:  # protobuf's DecodeError, which is no subclass of an error that onnx or we could name
        raise ValueError("these bytes are no ONNX model") from error
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights: Weights = {
        name: np.asarray(value, dtype=np.float32) for name, value in stored.items() if name.startswith(_NAMED)
    }
    matrices = _matrices(graph, stored)
    if not any(name.startswith("encoder.layer.0.") for name in matrices):
        raise ValueError("the model has no layer of a BERT encoder")
    return weights | matrices


def _matrices(graph: onnx.GraphProto, stored: Mapping[str, NDArray[np.float32]]) -> Weights:
    products = {node.output[0]: node for node in graph.node if node.op_type == "MatMul"}
    found: Weights = {}
    for node in graph.node:
        bias = next((name for name in node.input if name in stored and name.endswith(_BIAS)), None)
        product = next((products[name] for name in node.input if name in products), None)
        if node.op_type == "Add" and bias is not None and product is not None:
            matrix = next(stored[name] for name in product.input if name in stored)
            found[f"{bias.removesuffix(_BIAS)}.weight"] = np.ascontiguousarray(matrix.T, dtype=np.float32)
    return found
