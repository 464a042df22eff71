# SPDX-License-Identifier: Apache-2.0
"""A model in the format of ONNX: a logistic regression, as a file that a runtime loads.

Written by hand, since the package that does it weighs more than the runtime. The numbers are those
of fields in onnx.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["logistic_regression"]

_FLOAT = 1
_IR_VERSION, _OPSET = 8, 13


def logistic_regression(inputs: str, output: str, weights: Sequence[float], bias: float) -> bytes:
    """Returns a model: from a row of floats as many as `weights`, for any number of rows, a float.

    Args:
        inputs: The name of the rows.
        output: The name of the results, a row of one float for each.
        weights: What each float is multiplied with.
        bias: What is added to the sum, before the sigmoid of it is taken.
    """
    nodes = [
        _node("MatMul", [inputs, "weights"], "product"),
        _node("Add", ["product", "bias"], "sum"),
        _node("Sigmoid", ["sum"], output),
    ]
    initializers = [_tensor("weights", [len(weights), 1], weights), _tensor("bias", [1], [bias])]
    graph = b"".join(
        [
            *(_message(1, node) for node in nodes),
            _text(2, "logistic"),
            *(_message(5, it) for it in initializers),
            _message(11, _value(inputs, len(weights))),
            _message(12, _value(output, 1)),
        ]
    )
    opset = _text(1, "") + _number(2, _OPSET)
    return _number(1, _IR_VERSION) + _message(7, graph) + _message(8, opset)


def _node(operator: str, inputs: Sequence[str], output: str) -> bytes:
    names = b"".join(_text(1, name) for name in inputs)
    return names + _text(2, output) + _text(4, operator)


def _tensor(name: str, shape: Sequence[int], values: Sequence[float]) -> bytes:
    dimensions = b"".join(_number(1, size) for size in shape)
    raw = struct.pack(f"<{len(values)}f", *values)
    return dimensions + _number(2, _FLOAT) + _text(8, name) + _message(9, raw)


def _value(name: str, width: int) -> bytes:
    shape = _message(1, _text(2, "rows")) + _message(1, _number(1, width))
    tensor = _number(1, _FLOAT) + _message(2, shape)
    return _text(1, name) + _message(2, _message(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _message(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
