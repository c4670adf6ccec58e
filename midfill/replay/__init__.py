"""Recorded editing sessions, played against the whole stack, the engine, or everything but the model."""
