"""Writes numbers of bytes for people."""

from __future__ import annotations


def megabytes(count: float) -> str:
    """A number of bytes as readable text."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
