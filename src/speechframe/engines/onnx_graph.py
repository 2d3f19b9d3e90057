"""An ONNX model's graph, cut in memory: what is made inside a model can be read from outside, or be given."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.errors import EngineError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["Graph"]

_ERRORS_ONLY = 3


class Graph:
    """A model's graph.

    Parameters
    ----------
    parts
        The ``.onnx`` file, or the files that are one when joined.

    Raises
    ------
    EngineError
        When it is no model.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        import onnx

        try:
            self._model = onnx.load_model_from_string(b"".join(part.read_bytes() for part in parts))
        except Exception as error:  # the parser of protocol buffers has errors of its own
            raise EngineError(
                f"{parts[0]} is no model that can be read: {type(error).__name__}: {error}"
            ) from error
        self.makers: Mapping[str, Any] = {
            name: node for node in self._model.graph.node for name in node.output
        }
        """Each tensor that is made inside, and the node that makes it."""

    def nodes(self, kind: str) -> list[Any]:
        """Return the nodes of an operator."""
        return [node for node in self._model.graph.node if node.op_type == kind]

    def needed(self, outputs: Collection[str], inputs: Collection[str]) -> set[str]:
        """Return every tensor it takes to make ``outputs`` when ``inputs`` are given."""
        needed: set[str] = set()
        open_names = list(outputs)
        while open_names:
            name = open_names.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in self.makers and name not in inputs:
                node = self.makers[name]
                needed.update(node.output)
                open_names.extend(given for given in node.input if given)
        return needed

    def following(self, name: str) -> set[str]:
        """Return a tensor and every tensor that is made with its help."""
        found = {name}
        for node in self._model.graph.node:
            if not found.isdisjoint(node.input):
                found.update(node.output)
        return found

    def session(self, outputs: Collection[str], inputs: Collection[str]) -> "InferenceSession":
        """Return what makes some tensors from others, which are float32.

        The model's own inputs stay as far as they are used.
        """
        import onnx
        import onnxruntime

        whole = self._model.graph
        needed = self.needed(outputs, inputs)
        number = onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            [node for node in whole.node if node.output[0] in needed and node.output[0] not in inputs],
            "cut",
            [value for value in whole.input if value.name in needed]
            + [onnx.helper.make_tensor_value_info(name, number, None) for name in inputs],
            [onnx.helper.make_tensor_value_info(name, number, None) for name in outputs],
            [tensor for tensor in whole.initializer if tensor.name in needed],
        )
        cut = onnx.helper.make_model(
            graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        options = onnxruntime.SessionOptions()
        # More threads would make neither the bytes nor the time of others certain.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        return onnxruntime.InferenceSession(
            cut.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
