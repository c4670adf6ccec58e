"""Checkpoints on disk: found or downloaded, checked, their architecture read; torch is not imported."""
