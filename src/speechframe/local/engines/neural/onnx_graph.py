"""Cut the graph of an ONNX model in memory, so that inner tensors can be read or set."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from speechframe.engines.faults import read_file_facts
from speechframe.errors import EngineFault

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_ERRORS_ONLY = 3
"""Log level of onnxruntime."""
_VARINT_TYPE, _LENGTH_TYPE = 0, 2
"""Wire types of a protocol buffer: a variable-length integer, and data after their length."""
_VARINT_BITS = 64
"""Bits of the longest integer."""
_CONTINUATION_BIT = 0x80
"""This bit of a byte means that the integer continues in the next byte."""
_GRAPH_FIELD = 7
"""Number of the field ``graph`` in an ONNX model."""


class Graph:
    """The graph of a model.

    Parameters
    ----------
    parts
        The ``.onnx`` file, or its parts in order.

    Raises
    ------
    EngineFault
        The file is not an ONNX model.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        import onnx

        try:
            self._model = onnx.load_model_from_string(b"".join(part.read_bytes() for part in parts))
        except Exception as error:  # the parser of protocol buffers raises its own errors
            raise EngineFault(
                f"{parts[0]} is not a model that can be read: {type(error).__name__}: {error}"
            ) from error
        self.makers: Mapping[str, Any] = {
            name: node for node in self._model.graph.node for name in node.output
        }
        """Name of each inner tensor to the node that computes the tensor."""

    def find_nodes(self, kind: str) -> list[Any]:
        """Return the nodes with an operator, such as ``Ceil``."""
        return [node for node in self._model.graph.node if node.op_type == kind]

    def find_needed_names(self, outputs: Collection[str], inputs: Collection[str]) -> set[str]:
        """Return the names of `outputs` and of all tensors that they depend on if `inputs` are given."""
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

    def find_following(self, name: str) -> set[str]:
        """Return the name of a tensor, and the names of all tensors that depend on the tensor."""
        found = {name}
        for node in self._model.graph.node:
            if not found.isdisjoint(node.input):
                found.update(node.output)
        return found

    def open_session(self, outputs: Collection[str], inputs: Collection[str]) -> "InferenceSession":
        """Return a session that computes `outputs` from `inputs`, which are float32.

        The original inputs of the model that `outputs` still depend on are inputs, too.
        """
        import onnx
        import onnxruntime

        whole = self._model.graph
        needed = self.find_needed_names(outputs, inputs)
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
        # More threads would make the bytes irreproducible, and would slow down other jobs.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        return onnxruntime.InferenceSession(
            cut.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def check_whole(path: Path) -> None:
    """Raise EngineFault if a file is not a complete ONNX model.

    Only the outer fields are checked, and the weights are not read. This finds empty and truncated files, and
    web pages that were downloaded instead of the model.
    """
    facts = read_file_facts(path)
    if (problem := _find_outer_problem(path, facts.st_size, facts.st_mtime_ns)) is not None:
        raise EngineFault(f"{path} {problem}")


@lru_cache(maxsize=512)
def _find_outer_problem(path: Path, size_bytes: int, modified_ns: int) -> str | None:
    # The time is used only as a part of the cache key, so that a changed file is read again.
    del modified_ns
    if not size_bytes:
        return "is empty"
    found = set()
    try:
        with path.open("rb") as file:
            while file.tell() < size_bytes:
                number, kind = divmod(_read_varint(file), 8)
                size = _read_varint(file)
                found.add(number)
                if kind not in {_VARINT_TYPE, _LENGTH_TYPE}:
                    return "is not an ONNX model"
                if kind == _LENGTH_TYPE and file.seek(size, 1) > size_bytes:
                    return "is truncated" if number == _GRAPH_FIELD else "is not an ONNX model"
    except EOFError:
        return "is truncated"
    except (ValueError, OSError):
        return "is not an ONNX model"
    return None if _GRAPH_FIELD in found else "is not an ONNX model"


def _read_varint(file: IO[bytes]) -> int:
    """Read an integer of a protocol buffer: seven bits in each byte, the lowest bits first."""
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] % _CONTINUATION_BIT) << shift
        if byte[0] < _CONTINUATION_BIT:
            return value
    raise ValueError("not an integer")
