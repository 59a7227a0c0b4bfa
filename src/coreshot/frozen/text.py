"""Sentences as vectors, at the site: a tokeniser and a network of ONNX that the study names by file and SHA-256.

The network takes the numbers of a sentence's tokens, int64 [1, length], and each sentence runs alone: nothing is
padded, and a vector does not depend on the other records.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from coreshot.config import Positive, settings
from coreshot.errors import CoreshotError
from coreshot.frozen.files import Sha256, check_inside, find_file, read_file
from coreshot.frozen.network import check_finite, load_network, map_in_cores


@settings
class Embedding:
    """Which network makes vectors of sentences, and of which length."""

    file: str
    sha256: Sha256
    tokenizer: str  # a file tokenizer.json, as the package `tokenizers` reads it
    tokenizer_sha256: Sha256
    output: str
    dimension: Annotated[int, Field(gt=0, le=8192)]  # of a vector
    max_tokens: Annotated[int, Field(gt=0, le=4096)] = 128  # what comes after is not read
    scale: Positive = 1.0  # vectors are divided by this
    round_to: Positive = 2.0**-10

    def __post_init__(self) -> None:
        check_inside(self.file, "embedding")
        check_inside(self.tokenizer, "embedding")

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "n dimension"]:
        network = load_network(self.file, self.sha256, "embedding")
        network.check_outputs([self.output])
        if len(network.inputs) != 1:
            raise CoreshotError(
                f"embedding: {self.file} has the inputs {', '.join(network.inputs)}, and one of token numbers is "
                "needed; take a network with one input."
            )
        name = next(iter(network.inputs))
        tokenizer = _load_tokenizer(str(find_file(self.tokenizer)), self.tokenizer, self.tokenizer_sha256)

        def one(text: str) -> np.ndarray:
            ids = np.asarray([tokenizer.encode(text).ids], np.int64)
            # The last token is the one that ends a sentence.
            ids = np.concatenate([ids[:, : self.max_tokens - 1], ids[:, -1:]], 1) if ids.size > self.max_tokens else ids
            found = np.asarray(network.run([self.output], {name: ids})[0], np.float32).ravel()
            if len(found) != self.dimension:
                raise CoreshotError(
                    f"embedding: output {self.output!r} of {self.file} has {len(found)} numbers for a sentence, the "
                    f"study says {self.dimension}; change it."
                )
            return found

        vectors = np.stack([np.zeros(self.dimension, np.float32), *map_in_cores(one, texts)])[1:]
        check_finite(vectors, network, [self.output])
        scaled = vectors.astype(np.float64) / self.scale
        return (np.round(scaled / self.round_to) * self.round_to).astype(np.float32)


@lru_cache(maxsize=2)
def _load_tokenizer(path: str, file: str, sha256: str) -> Any:
    data = read_file(file, sha256, "embedding")
    try:
        import tokenizers
    except ImportError:
        raise CoreshotError(
            "embedding: the package tokenizers is not there; install it with `pip install coreshot[text]`."
        ) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # tokenizers raises Exception itself
        raise CoreshotError(
            f"embedding: {path} is no tokenizer.json ({type(error).__name__}); get the study's file."
        ) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
