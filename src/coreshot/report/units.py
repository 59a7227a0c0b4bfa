"""Bytes, seconds and counts as a person says them."""

from __future__ import annotations


def format_bytes(amount: float) -> str:
    """Three digits at most: 85546 is "86 kB", as 1 kB = 1,000 bytes."""
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if amount >= 0.9995 * size:
            value = amount / size
            return f"{value:.0f} {name}" if value >= 9.95 else f"{value:.1f} {name}"
    return f"{amount:.0f} bytes"


def format_seconds(seconds: float) -> str:
    """To what matters of it: "0.4 s", "12 s", "3 min 20 s", "2 h 5 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
