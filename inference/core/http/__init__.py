"""The HTTP APIs that other programs know: OpenAI's, llama.cpp's and Ollama's."""
