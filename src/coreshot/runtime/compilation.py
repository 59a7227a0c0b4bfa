"""Compiled programs are kept on disk, so that the second run of anything, in any process, compiles nothing."""

from __future__ import annotations

import os
from pathlib import Path

import jax

LEAST_SECONDS = 0.3  # of compiling; what compiles faster is not worth a file


def keep_compiled() -> None:
    """In JAX_COMPILATION_CACHE_DIR, or in the user's cache. A place that JAX's configuration already has stays."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "coreshot" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
