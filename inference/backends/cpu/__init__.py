"""The CPU kernel: its binding, packed weights and limits; the C++ itself is in `kernel/`."""
