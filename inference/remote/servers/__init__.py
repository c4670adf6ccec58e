"""One server of a model: its address, its interface, and how llama-server and OpenAI-compatible ones are spoken to."""
