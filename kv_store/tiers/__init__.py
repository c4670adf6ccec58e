"""Tiers and their storage in device and main memory."""
