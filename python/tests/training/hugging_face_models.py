"""Small models of transformers in float64, without dropout, and padded batches for them."""

import torch
from models import cross_entropy, oracle

transformers = oracle("transformers")

SIZES = {"vocab_size": 31, "num_hidden_layers": 2, "num_attention_heads": 2, "tie_word_embeddings": False}
TIED = {**SIZES, "hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 1, "tie_word_embeddings": True}
ENCODER = {"hidden_size": 16, "intermediate_size": 24, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "dropout_rate": 0}
EXPERTS = {"num_experts_per_tok": 2, "output_router_logits": True, "experts_implementation": "eager"}


def llama(**sizes):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 1, **SIZES, **sizes}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).double().train()


def bert(**sizes):
    config = transformers.BertConfig(**ENCODER, **{**SIZES, **sizes})
    return transformers.BertForMaskedLM(config).double().train()


def gpt2():
    quiet = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=16, **quiet)
    return transformers.GPT2LMHeadModel(config).double().train()


def causal(name, **sizes):
    """Returns a function that makes a model whose embedding is its head too."""

    def make():
        config = getattr(transformers, f"{name}Config")(**{**TIED, **sizes})
        return getattr(transformers, f"{name}ForCausalLM")(config).double().train()

    return make


def vit():
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "num_labels": 5}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**ENCODER, **sizes)).double().train()


def t5():
    config = transformers.T5Config(vocab_size=31, **T5)
    return transformers.T5ForConditionalGeneration(config).double().train()


MODELS = {
    "gpt2": gpt2,
    "llama": causal("Llama"),
    "mistral": causal("Mistral", sliding_window=3),
    "qwen2": causal("Qwen2"),
    "qwen3": causal("Qwen3", head_dim=8),
    "opt": causal("OPT", ffn_dim=24, word_embed_proj_dim=8, max_position_embeddings=16, dropout=0),
    "gpt-neox": causal("GPTNeoX", tie_word_embeddings=False),
    "gemma": causal("Gemma", head_dim=8),
    "gemma2": causal("Gemma2", head_dim=8, sliding_window=3),
    "phi": causal("Phi", tie_word_embeddings=False),
    "mixtral": causal("Mixtral", num_local_experts=3, tie_word_embeddings=False, **EXPERTS),
    "olmoe": causal("Olmoe", num_experts=4, tie_word_embeddings=False, **EXPERTS),
    "bert": lambda: bert(tie_word_embeddings=True),
    "vit": vit,
    "t5": t5,
}


def batch_of(name, samples=4):
    if name == "vit":
        return {"pixel_values": torch.randn(samples, 3, 8, 8).double()}, torch.randint(5, (samples,))
    ids, mask = torch.randint(2, 31, (samples, 5)), torch.ones(samples, 5, dtype=torch.long)
    for sample in range(1, samples):
        mask[sample, 5 - sample % 3 :] = 0
    inputs = transformers.BatchEncoding({"input_ids": ids, "attention_mask": mask})
    if name == "t5":
        inputs["decoder_input_ids"] = torch.randint(2, 31, (samples, 4))
    return inputs, torch.randint(31, (samples, 4 if name == "t5" else 5))


def loss_of(output, targets):
    if isinstance(output, torch.Tensor):
        return cross_entropy(output, targets)
    auxiliary = output["aux_loss"].double() * targets.numel()
    return cross_entropy(output["logits"], targets) + 0.1 * auxiliary


def unpipelined(model, inputs, targets):
    """Returns the mean loss of micro-batches of a sample, and gradients by name; shared ones by each."""
    total = 0
    for sample in range(len(targets)):
        output = model(**{name: tensor[sample : sample + 1] for name, tensor in inputs.items()})
        auxiliary = output.get("aux_loss")
        result = output.logits if auxiliary is None else {"logits": output.logits, "aux_loss": auxiliary}
        total = total + loss_of(result, targets[sample : sample + 1])
    loss = total / targets.numel()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters(remove_duplicate=False)}
    model.zero_grad()
    return loss.item(), {name: gradient for name, gradient in gradients.items() if gradient is not None}
