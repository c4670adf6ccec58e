"""The laboratory beside midfill, which imports none of it: training, evaluation, how the bundled models are made."""
