"""Image files (PNG, JPEG, ...) as arrays of bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8

from coreshot.errors import CoreshotError

GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # all with 8 bits: others would be cut off at 255


def decode_image(
    source: Path | bytes,
    where: str,
    num_channels: Literal[1, 3] | None = None,
    size: tuple[int, int] | None = None,
) -> UInt8[np.ndarray, "height width channels"]:
    """An image file with the channels that it has, grey or RGB, unless their number is given; resized to `size`."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            if image.mode not in GREY_MODES + COLOUR_MODES:
                raise CoreshotError(
                    f"{where}: has pixels of kind {image.mode}, not 0 to 255; convert it to 8 bits, "
                    "or give an npz with its own range."
                )
            is_grey = image.mode in GREY_MODES if num_channels is None else num_channels == 1
            converted = image.convert("L" if is_grey else "RGB")
            if size is not None and converted.size != size[::-1]:
                converted = converted.resize(size[::-1], Image.Resampling.BILINEAR)
            pixels = np.asarray(converted)
    except CoreshotError:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CoreshotError(f"{where}: not a readable image ({reason}); mend or remove it.") from None
    return pixels[..., None] if pixels.ndim == 2 else pixels
