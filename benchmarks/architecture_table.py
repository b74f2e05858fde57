"""The architectures of transformers that the row check is tried on."""

from benchmarks.architecture_language import (
    DECODERS,
    ENCODERS,
    EXPERTS,
    LLAMA_LIKE,
    PAIRED,
    STATE,
)
from benchmarks.architecture_perception import (
    AUDIO,
    MIXING,
    SERIES,
    SEVERAL,
    VISION,
)

ARCHITECTURES = (
    *LLAMA_LIKE,
    *DECODERS,
    *EXPERTS,
    *STATE,
    *ENCODERS,
    *PAIRED,
    *VISION,
    *AUDIO,
    *SEVERAL,
    *MIXING,
    *SERIES,
)
