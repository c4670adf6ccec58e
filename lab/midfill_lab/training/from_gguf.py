"""Makes a folder to train from of a Llama in a GGUF file: dequantized weights, and a tokenizer with FIM markers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from inference.checkpoints.architecture import SUPPORTED_TYPES, Architecture
from inference.checkpoints.gguf.file import GgufCheckpoint, known_by_suffix, open_gguf
from inference.checkpoints.gguf.tokenizer import tokenizer_definition
from midfill_lab.training.options import OptionError
from midfill_lab.training.vocabulary import MIDDLE, PREFIX, SUFFIX
from protocol.errors import BadModel

MARKERS = (PREFIX, SUFFIX, MIDDLE)
NOISE_NORM = 0.5  # of a marker's own direction, as a share of its embedding's norm
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


def read_base(file: Path, folder: Path, reserved: tuple[int, ...] = (), *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the model in `file` to `folder` as config, tokenizer and `dtype` weights.

    `reserved` are the ids of three special tokens that the model was never trained on; they become the FIM markers.
    Such tokens often share one embedding, so each marker gets a direction of its own added to it.

    Raises:
        BadModel: the file is missing, damaged, or of an architecture or a tokenizer that is not supported.
        OptionError: an id is not that of a special token, or there are not three.
    """
    notes, definition = _open(file).config["midfill"], read_tokenizer(file, reserved)
    from transformers import AutoModelForCausalLM

    with known_by_suffix(file) as named:
        model = AutoModelForCausalLM.from_pretrained(named.parent, gguf_file=named.name, dtype=torch.float32)
    state: dict[str, Tensor] = model.state_dict()
    _separate(state[_EMBEDDING], reserved)
    tied = bool(model.config.tie_word_embeddings)
    tensors = {key: value.to(dtype).contiguous() for key, value in state.items() if not (tied and key == _OUTPUT)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes its files private to their owner
    config = {key: value for key, value in model.config.to_diff_dict().items() if key != "quantization_config"}
    ends = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": None} if reserved else {}
    if notes:  # of a model that midfill trained
        config["midfill"] = notes
    written = {**config, **ends, "dtype": str(dtype).removeprefix("torch."), "architectures": [type(model).__name__]}
    _write(folder / "config.json", written)
    _write(folder / "tokenizer.json", definition)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": definition["added_tokens"][0]["content"],
            "model_max_length": model.config.max_position_embeddings,
            "clean_up_tokenization_spaces": False,
        },
    )


def read_tokenizer(file: Path, reserved: tuple[int, ...] = ()) -> dict[str, Any]:
    """The content of a tokenizer.json with the tokenizer in `file`; `reserved` and errors as of `read_base`."""
    definition = tokenizer_definition(_open(file).headers[0])
    if reserved:
        _rename(definition, reserved)
    return definition


def _open(file: Path) -> GgufCheckpoint:
    """BadModel for a file that cannot be trained from."""
    checkpoint = open_gguf(file, str(file))
    kind = checkpoint.headers[0].metadata.get("tokenizer.ggml.model")
    shape = checkpoint.architecture
    if not isinstance(shape, Architecture) or shape.model_type not in SUPPORTED_TYPES or kind != "gpt2":
        raise BadModel(
            f"{file} is a model of architecture {checkpoint.headers[0].architecture!r} with a tokenizer {kind!r}, "
            f"expected {', '.join(SUPPORTED_TYPES)} with gpt2"
        )
    if len(checkpoint.headers) > 1:
        raise BadModel(f"{file} is in {len(checkpoint.headers)} parts: join them with llama-gguf-split --merge")
    rope = shape.rope_type
    if rope != "default":  # transformers does not read it from such a file
        raise BadModel(f"{file} has RoPE of type {rope!r}: train from the model's safetensors files")
    return checkpoint


def _rename(definition: dict[str, Any], reserved: tuple[int, ...]) -> None:
    added = {token["id"]: token for token in definition["added_tokens"]}
    if len(set(reserved)) != len(MARKERS):
        raise OptionError(f"reserved ids are {reserved}, expected {len(MARKERS)} different ones")
    for id_, marker in zip(reserved, MARKERS, strict=True):
        if definition["model"]["vocab"].get(marker, id_) != id_:
            raise OptionError(f"{marker} is token {definition['model']['vocab'][marker]} already, not {id_}")
        if id_ not in added:
            raise OptionError(f"{id_} is not the id of a special token: these are {', '.join(map(str, added))}")
        definition["model"]["vocab"].pop(added[id_]["content"], None)
        definition["model"]["vocab"][marker] = id_
        added[id_]["content"] = marker


def _separate(embedding: Tensor, reserved: tuple[int, ...]) -> None:
    """Add to each marker's row a direction of its own."""
    generator = torch.Generator().manual_seed(0)
    for id_ in reserved:
        own = torch.randn(embedding.shape[1], generator=generator)
        embedding[id_] += own / own.norm() * NOISE_NORM * embedding[id_].norm()


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
