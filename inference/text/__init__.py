"""Text and tokens: FIM formats, tokenization, prompts, stops and token healing."""
