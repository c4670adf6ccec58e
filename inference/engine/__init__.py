"""Runs requests in shared forwards: slots, resident prompts, prefill and decode, speculation, alternatives."""
