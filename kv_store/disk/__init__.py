"""The disk tier: pages as files, their index, and one folder per model."""
