"""The HTTP APIs that other programs know: OpenAI's, Mistral's, llama.cpp's, Ollama's and Tabby's."""
