"""The HTTP APIs that other programs know: OpenAI's, Mistral's, llama.cpp's and Ollama's."""
