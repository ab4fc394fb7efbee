"""Files, codecs and graphs: names of ``_persistence`` for tests."""

from nona_sklearn._persistence import codec, file
from nona_sklearn._persistence.codec import Decoder, Encoder, UnknownError
from nona_sklearn._persistence.onnx import (
    Encoding,
    Graph,
    WithBank,
    calendar_parts,
    exportable_snapshot,
    input_values,
    text_of,
    to_onnx,
)
