"""The decoder of the Llama family in torch: weights, forward, CUDA graphs, quantized weights."""
