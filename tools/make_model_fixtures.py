#!/usr/bin/env python3
"""Writes tests/model/fixtures/*.safetensors: small random models of Hugging Face `transformers`, with inputs, logits,
loss and gradients in float64. The C++ tests compare with them and need no Python.

    pip install torch==2.11.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6
    python tools/make_model_fixtures.py

Tensors: weights/NAME, gradients/NAME (names as in src/model_config/parameters.h), tokens, targets, logits, loss; BERT also
token_types, attention_mask, next_sentence, sentence_logits. Metadata: the configuration and the versions used.
"""

import pathlib

import safetensors.torch
import torch
import transformers
from torch.nn.functional import cross_entropy

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "model" / "fixtures"
IGNORED = -100
SEQUENCES, LENGTH = 3, 7
# Odd proportions, so that no two sizes can be taken for each other.
SIZES = dict(layers=2, hidden=16, heads=2, feed_forward=40, vocabulary=64, positions=12)


def randomise(model):
    """Large random values everywhere, so that a forgotten bias or scale shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = parameter.dim() == 1 and name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.3)


def gpt2(tied):
    config = transformers.GPT2Config(
        vocab_size=SIZES["vocabulary"], n_positions=SIZES["positions"], n_embd=SIZES["hidden"],
        n_layer=SIZES["layers"], n_head=SIZES["heads"], n_inner=SIZES["feed_forward"],
        activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=tied,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager", use_cache=False,
        bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).double()
    randomise(model)
    tokens = torch.randint(SIZES["vocabulary"], (SEQUENCES, LENGTH))
    targets = torch.cat([tokens[:, 1:], torch.full((SEQUENCES, 1), IGNORED)], dim=1)
    targets[1, 2] = IGNORED
    logits = model(input_ids=tokens).logits
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    tensors = dict(tokens=tokens, targets=targets, logits=logits, loss=loss)
    return model, tensors, lambda name: name.removeprefix("transformer.")


def bert(tied):
    config = transformers.BertConfig(
        vocab_size=SIZES["vocabulary"], max_position_embeddings=SIZES["positions"], hidden_size=SIZES["hidden"],
        num_hidden_layers=SIZES["layers"], num_attention_heads=SIZES["heads"],
        intermediate_size=SIZES["feed_forward"], hidden_act="gelu", layer_norm_eps=1e-12, tie_word_embeddings=tied,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
        pad_token_id=None)  # by default the embedding of token 0 gets no gradient; ours has no such exception
    model = transformers.BertForPreTraining(config).double()
    randomise(model)
    head = model.cls.predictions
    if not tied:
        # An untied decoder has two biases, of which forward uses decoder.bias alone; the other is left out of the file.
        with torch.no_grad():
            head.bias.zero_()
        head.bias.requires_grad_(False)
    tokens = torch.randint(SIZES["vocabulary"], (SEQUENCES, LENGTH))
    token_types = (torch.arange(LENGTH) >= 4).long().repeat(SEQUENCES, 1)
    attention_mask = torch.ones(SEQUENCES, LENGTH, dtype=torch.bool)
    attention_mask[1, 5:] = False
    attention_mask[2, 3:] = False
    targets = torch.full((SEQUENCES, LENGTH), IGNORED)
    targets[0, 2], targets[0, 6], targets[1, 3], targets[2, 1] = 5, 63, 0, 17
    next_sentence = torch.tensor([0, 1, 1])
    output = model(input_ids=tokens, token_type_ids=token_types, attention_mask=attention_mask.long(), labels=targets,
                   next_sentence_label=next_sentence)
    tensors = dict(tokens=tokens, targets=targets, token_types=token_types, attention_mask=attention_mask,
                   next_sentence=next_sentence, logits=output.prediction_logits,
                   sentence_logits=output.seq_relationship_logits, loss=output.loss)
    return model, tensors, lambda name: name.replace("cls.predictions.decoder.bias", "cls.predictions.bias")


def save(family, tied, build):
    torch.manual_seed(20210914)
    model, tensors, rename = build(tied)
    tensors["loss"].backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            tensors[f"weights/{rename(name)}"] = parameter
            tensors[f"gradients/{rename(name)}"] = parameter.grad
    metadata = {name: str(size) for name, size in SIZES.items()}
    metadata |= dict(family=family, tied=str(tied).lower(), torch=torch.__version__,
                     transformers=transformers.__version__)
    path = FIXTURES / f"{family}_{'tied' if tied else 'untied'}.safetensors"
    safetensors.torch.save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path,
                                metadata)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes, loss {tensors['loss'].item():.6f}")


def main():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for tied in (False, True):
        save("gpt2", tied, gpt2)
        save("bert", tied, bert)


if __name__ == "__main__":
    main()
