"""The decoder of the Llama family in torch: weights, forward, exact mode, CUDA graphs, quantized weights."""
