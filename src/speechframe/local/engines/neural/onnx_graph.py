"""An ONNX model's graph, cut in memory, so that a tensor inside the model can be read or be given."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from speechframe.engines.faults import readable
from speechframe.errors import EngineFault

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["Graph", "check_whole"]

_ERRORS_ONLY = 3
_VARINT, _LENGTH = 0, 2
_VARINT_BITS = 64
_MORE = 0x80
"""The bit of a byte that another byte follows."""
_GRAPH = 7
"""The number of the field ``graph`` in an ONNX model."""


class Graph:
    """A model's graph.

    Parameters
    ----------
    parts
        The ``.onnx`` file, or the files that are one when joined.

    Raises
    ------
    EngineFault
        The file is not a model.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        import onnx

        try:
            self._model = onnx.load_model_from_string(b"".join(part.read_bytes() for part in parts))
        except Exception as error:  # the parser of protocol buffers has errors of its own
            raise EngineFault(
                f"{parts[0]} is not a model that can be read: {type(error).__name__}: {error}"
            ) from error
        self.makers: Mapping[str, Any] = {
            name: node for node in self._model.graph.node for name in node.output
        }
        """Each tensor inside the model, and the node that makes it."""

    def nodes(self, kind: str) -> list[Any]:
        """Return the nodes of an operator."""
        return [node for node in self._model.graph.node if node.op_type == kind]

    def needed(self, outputs: Collection[str], inputs: Collection[str]) -> set[str]:
        """Return every tensor that ``outputs`` depend on when ``inputs`` are given."""
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
        """Return a tensor and every tensor that depends on it."""
        found = {name}
        for node in self._model.graph.node:
            if not found.isdisjoint(node.input):
                found.update(node.output)
        return found

    def session(self, outputs: Collection[str], inputs: Collection[str]) -> "InferenceSession":
        """Return a session that makes ``outputs`` from ``inputs``, which are float32.

        The model's own inputs stay if ``outputs`` depend on them.
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
        # With more threads, neither the bytes nor the time of other jobs would be certain.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        return onnxruntime.InferenceSession(
            cut.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def _content(part: Path) -> bytes:
    readable(part)
    return part.read_bytes()


def check_whole(path: Path) -> None:
    """Raise EngineFault if a file is not a whole ONNX model, by its outer fields; the weights are not read.

    This check finds empty and truncated files, and downloaded pages.
    """
    facts = readable(path)
    if (problem := _outer_problem(path, facts.st_size, facts.st_mtime_ns)) is not None:
        raise EngineFault(f"{path} {problem}")


@lru_cache(maxsize=512)
def _outer_problem(path: Path, size_bytes: int, modified_ns: int) -> str | None:
    # The time is part of the cache's key alone: a changed file is read again.
    del modified_ns
    if not size_bytes:
        return "is empty"
    found = set()
    try:
        with path.open("rb") as file:
            while file.tell() < size_bytes:
                number, kind = divmod(_varint(file), 8)
                size = _varint(file)
                found.add(number)
                if kind not in {_VARINT, _LENGTH}:
                    return "is not an ONNX model"
                if kind == _LENGTH and file.seek(size, 1) > size_bytes:
                    return "is truncated" if number == _GRAPH else "is not an ONNX model"
    except EOFError:
        return "is truncated"
    except (ValueError, OSError):
        return "is not an ONNX model"
    return None if _GRAPH in found else "is not an ONNX model"


def _varint(file: IO[bytes]) -> int:
    """Return an integer of a protocol buffer: seven bits a byte, the lowest first."""
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] % _MORE) << shift
        if byte[0] < _MORE:
            return value
    raise ValueError("not an integer")
