"""The model's side: checkpoints, prompts as tokens, prefill and decode, and the service around them."""
