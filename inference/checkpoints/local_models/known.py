"""A short list of models on the Hugging Face hub that fill in code well, to choose from before one is downloaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Attributes:
    name: as `--model` and `midfill models download` take it.
    licence: as the model's card names it.
    size: about the bytes to download, which are also about those in memory, in the types of the files.
    fim: the name of the FIM format.
    """

    name: str
    licence: str
    size: int
    fim: str


# Names, licences and sizes as the models' cards have them; `midfill models download` shows the hub's before it begins.
KNOWN_MODELS = (
    KnownModel("ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF", "apache-2.0", 531_000_000, "qwen-coder"),
    KnownModel("ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF", "apache-2.0", 1_650_000_000, "qwen-coder"),
    KnownModel("ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF", "apache-2.0", 8_100_000_000, "qwen-coder"),
    KnownModel("Qwen/Qwen2.5-Coder-0.5B", "apache-2.0", 988_000_000, "qwen-coder"),
    KnownModel("Qwen/Qwen2.5-Coder-1.5B", "apache-2.0", 3_090_000_000, "qwen-coder"),
    KnownModel("Qwen/Qwen2.5-Coder-7B", "apache-2.0", 15_200_000_000, "qwen-coder"),
    KnownModel("deepseek-ai/deepseek-coder-1.3b-base", "deepseek", 2_690_000_000, "deepseek-coder"),
    KnownModel("JetBrains/Mellum-4b-base", "apache-2.0", 8_040_000_000, "mellum"),
    KnownModel("bigcode/starcoder2-3b", "bigcode-openrail-m", 12_100_000_000, "starcoder2"),
)
