"""Hugging Face models as lists of layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ._torch_version import require_same_torch

require_same_torch()
from . import _training  # noqa: E402


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Returns the layers of a LlamaForCausalLM, GPT2LMHeadModel or BertForMaskedLM for `Pipeline`.

    They map token ids [b, L] to logits [b, L, vocabulary]; BERT attends to all tokens. They share the model's
    parameters, so after `Pipeline.gather`, `model.save_pretrained` writes the trained values. Raises ConfigError for
    another model, and if embedding and head share a matrix.
    """
    make = {"LlamaForCausalLM": _llama, "GPT2LMHeadModel": _gpt2, "BertForMaskedLM": _bert}.get(type(model).__name__)
    if make is None:
        raise _training.ConfigError(
            f"layers_of: expected LlamaForCausalLM, GPT2LMHeadModel or BertForMaskedLM, not {type(model).__name__}; "
            "give other models as a list of layers"
        )
    head = model.get_output_embeddings()
    if head.weight is model.get_input_embeddings().weight:
        raise _training.ConfigError(
            "layers_of: embedding and head share a matrix, but are on different ranks; set tie_word_embeddings=False"
        )
    layers: list[nn.Module] = make(model)
    return layers


class _Block(nn.Module):
    """A transformer layer with its mask and positions."""

    def __init__(self, layer: nn.Module, config: Any, causal: bool, rotary: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer
        self._config, self._causal = config, causal
        # A list, because all layers share this module of the model
        self._rotary = [rotary] if rotary is not None else []

    def forward(self, hidden: Tensor) -> Tensor:
        from transformers import masking_utils

        make_mask = masking_utils.create_causal_mask if self._causal else masking_utils.create_bidirectional_mask
        arguments = {"past_key_values": None} if self._causal else {}
        mask = make_mask(config=self._config, inputs_embeds=hidden, attention_mask=None, **arguments)
        more: dict[str, Any] = {}
        for rotary in self._rotary:
            positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
            more = {"position_ids": positions, "position_embeddings": rotary(hidden, positions)}
        result = self.layer(hidden, attention_mask=mask, **more)
        output: Tensor = result[0] if isinstance(result, tuple) else result
        return output


class _Gpt2Embedding(nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = body.wte, body.wpe, body.drop

    def forward(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device)))
        return embedded


def _llama(model: Any) -> list[nn.Module]:
    body = model.model
    blocks = [_Block(layer, model.config, True, body.rotary_emb) for layer in body.layers]
    return [body.embed_tokens, *blocks, nn.Sequential(body.norm, model.lm_head)]


def _gpt2(model: Any) -> list[nn.Module]:
    body = model.transformer
    blocks = [_Block(layer, model.config, True) for layer in body.h]
    return [_Gpt2Embedding(body), *blocks, nn.Sequential(body.ln_f, model.lm_head)]


def _bert(model: Any) -> list[nn.Module]:
    body = model.bert
    blocks = [_Block(layer, model.config, False) for layer in body.encoder.layer]
    return [body.embeddings, *blocks, model.cls]
