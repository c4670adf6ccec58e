"""Quality of completions: the benchmark HumanEval-Infilling and held-out files, in every prompt format."""
