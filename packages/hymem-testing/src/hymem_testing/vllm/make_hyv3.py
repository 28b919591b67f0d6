"""A two-layer model of the Hy3 architecture without weights, to run vLLM's own `hy_v3` code path.

Runs with the vLLM environment's Python: `make_hyv3.py OUT SMOLLM2_DIRECTORY TEMPLATE`; serve it
with `--load-format dummy`. Its text is noise; what it shows is that `reasoning_effort` reaches the
real reasoning and tool parsers. That Hy-Memory-30B-A3B is `hy_v3` is inferred from its siblings.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

MARKERS = ("hy_begin▁of▁sentence", "hy_User", "hy_Assistant", "hy_eos", "reasoning_mode")
TAGS = ("think", "tool_calls", "tool_call", "arg_key", "arg_value", "tool_responses", "tool_response")


def main(out: Path, smollm2: Path, template: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    markers = [f"<｜{name}｜>" for name in MARKERS]  # noqa: RUF001 - the model's own full-width bars
    tags = [tag for name in TAGS for tag in (f"<{name}>", f"</{name}>")] + ["<tool_sep>"]
    tokenizer.add_tokens([AddedToken(each, normalized=False, special=True) for each in markers])
    tokenizer.add_tokens([AddedToken(each, normalized=False, special=False) for each in tags])
    tokenizer.save(str(out / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(marker) for name, marker in zip(MARKERS, markers, strict=True)}
    vocabulary = -(-tokenizer.get_vocab_size() // 64) * 64
    _write(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": markers[0],
            "eos_token": markers[3],
            "pad_token": "<|im_end|>",
            "model_max_length": 8192,
            "token_suffix": "",  # which vLLM's hy_v3 parsers look for
            "clean_up_tokenization_spaces": False,
        },
    )
    _write(
        out / "config.json",
        {
            "architectures": ["HYV3ForCausalLM"],
            "model_type": "hy_v3",
            "vocab_size": vocabulary,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-05,
            "hidden_act": "silu",
            "rope_theta": 11158840.0,
            "rope_parameters": {"rope_theta": 11158840.0, "rope_type": "default"},
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_shared_experts": 1,
            "moe_intermediate_size": 64,
            "router_scaling_factor": 2.826,
            # vLLM reads its own names for these, not those that transformers writes.
            "expert_hidden_dim": 64,
            "first_k_dense_replace": 1,
            "qk_norm": True,
            "route_norm": True,
            "moe_router_enable_expert_bias": True,
            "moe_router_use_sigmoid": True,
            "enable_moe_fp32_combine": True,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": ids["hy_begin▁of▁sentence"],
            "eos_token_id": ids["hy_eos"],
            "pad_token_id": 2,
            "dtype": "bfloat16",
        },
    )
    (out / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
