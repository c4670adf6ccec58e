"""Engines in other processes: llama-server, and servers that speak OpenAI's completions API with token ids."""
