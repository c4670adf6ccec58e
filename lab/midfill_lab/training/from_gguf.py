"""Makes a folder to train from of a Llama in a GGUF file: dequantized weights, and a tokenizer with FIM markers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from inference.backends.llama.weights import GgufReader
from inference.checkpoints.architecture import SUPPORTED_TYPES, Architecture
from inference.checkpoints.gguf.file import GgufCheckpoint, open_gguf
from inference.checkpoints.gguf.tokenizer import tokenizer_definition
from midfill_lab.training.options import OptionError
from midfill_lab.training.vocabulary import MIDDLE, PREFIX, SUFFIX
from protocol.errors import BadModel

MARKERS = (PREFIX, SUFFIX, MIDDLE)
NOISE_NORM = 0.5  # of a marker's own direction, as a share of its embedding's norm
_EMBEDDING = "model.embed_tokens.weight"
_ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def read_base(file: Path, folder: Path, reserved: tuple[int, ...] = (), *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the model in `file` to `folder` as config, tokenizer and `dtype` weights.

    `reserved` are the ids of three special tokens that the model was never trained on; they become the FIM markers.
    Such tokens often share one embedding, so each marker gets a direction of its own added to it.

    Raises:
        BadModel: the file is missing, damaged, or of an architecture or a tokenizer that is not supported.
        OptionError: an id is not that of a special token, or there are not three.
    """
    checkpoint = _open(file)
    definition = tokenizer_definition(checkpoint.headers[0])
    if reserved:
        _rename(definition, reserved)
    config, metadata = dict(checkpoint.config), checkpoint.headers[0].metadata
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    state = _state(checkpoint)
    _separate(state[_EMBEDDING], reserved)
    tensors = {name: tensor.to(dtype) for name, tensor in state.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes its files private to their owner
    ends = (None, 0, None) if reserved else tuple(metadata.get(f"tokenizer.ggml.{key}") for key in _ENDS)
    kind = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config["model_type"]]
    config |= zip(_ENDS, ends, strict=True)
    _write(folder / "config.json", {**config, "dtype": str(dtype).removeprefix("torch."), "architectures": [kind]})
    _write(folder / "tokenizer.json", definition)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": definition["added_tokens"][0]["content"],
            "model_max_length": config["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
        },
    )


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
    rope = shape.rope_type
    if rope != "default":  # transformers does not know all that such a file may have
        raise BadModel(f"{file} has RoPE of type {rope!r}: train from the model's safetensors files")
    return checkpoint


def _state(checkpoint: GgufCheckpoint) -> dict[str, Tensor]:
    """The tensors in float32, by their names in a safetensors file."""
    shape, files = checkpoint.architecture, checkpoint.weights()
    assert isinstance(shape, Architecture), f"{checkpoint.path} was opened as a model to train from"
    reader = GgufReader(files, shape, torch.float32, torch.device("cpu"))
    shapes = {name: tensor.shape for file in files for name, tensor in file.tensors.items()}
    return {
        name: reader.matrix({name: rows}, *columns) if columns else reader.vector(name, rows)
        for name, (rows, *columns) in shapes.items()
    }


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
