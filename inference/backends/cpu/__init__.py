"""The CPU kernel: its binding, packed weights and limits; the C++ source is in `kernel/`."""
