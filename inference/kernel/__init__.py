"""Forwards on the CPU: a C++ kernel for a few new tokens at a time, and the same in torch, to test it against."""
