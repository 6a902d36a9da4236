"""The nodes and constants of an ONNX graph."""

from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto


@final
class OnnxGraph:
    """Nodes and constants, in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def product(self, vector: str, name: str, matrix: Float32Array) -> str:
        """[n, columns] times [rows, columns] transposed."""
        return self.add("MatMul", [vector, self.constant(f"{name}_w", np.ascontiguousarray(matrix.T))], [name])

    def plus(self, vector: str, name: str, bias: Float32Array) -> str:
        """[n, columns] plus [columns]."""
        return self.add("Add", [vector, self.constant(f"{name}_b", bias)], [name])

    def add(self, operator: str, inputs: list[str], outputs: list[str], **attributes: int) -> str:
        """Adds a node; gives the name of its first output."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]

    def constant(self, name: str, array: NDArray[np.generic]) -> str:
        """Adds a constant; gives its name."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name
