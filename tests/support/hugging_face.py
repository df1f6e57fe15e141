"""Small random Hugging Face models, computed exactly in their type, and the files that Chimera's tests read.

A case is a Chimera model file (docs/models.md) as a dict. `build` makes the transformers model with large random
weights, `run` returns logits, loss and gradients of random inputs, `save` writes everything
(tests/model/reference_case.h).
"""

import math
import types

import safetensors.torch
import torch
import transformers
from torch.nn.functional import cross_entropy

IGNORED = -100


def toml(case):
    """Returns the text of the model file."""
    def value(x):
        return f'"{x}"' if isinstance(x, str) else str(x).lower() if isinstance(x, bool) else repr(x)
    lines = [f"{key} = {value(x)}" for key, x in case.items() if not isinstance(x, dict) and key != "class"]
    for key, table in case.items():
        if isinstance(table, dict):
            lines += [f"[{key}]"] + [f"{name} = {value(x)}" for name, x in table.items()]
    return "\n".join(lines) + "\n"


def randomise(model):
    """Sets large random values everywhere, so that a missing bias or scale is detected."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = parameter.dim() == 1 and name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.3)


def gpt2(case):
    config = transformers.GPT2Config(
        vocab_size=case["vocabulary"], n_positions=case["positions"], n_embd=case["hidden"], n_layer=case["layers"],
        n_head=case["heads"], n_inner=case["feed_forward"], activation_function="gelu_new",
        layer_norm_epsilon=case.get("norm_epsilon", 1e-5), tie_word_embeddings=case["tied"], resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager", use_cache=False, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def bert(case):
    config = transformers.BertConfig(
        vocab_size=case["vocabulary"], max_position_embeddings=case["positions"], hidden_size=case["hidden"],
        num_hidden_layers=case["layers"], num_attention_heads=case["heads"], intermediate_size=case["feed_forward"],
        hidden_act="gelu", layer_norm_eps=case.get("norm_epsilon", 1e-12), tie_word_embeddings=case["tied"],
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
        pad_token_id=None)  # By default, transformers gives the embedding of token 0 no gradient; Chimera does
    return transformers.BertForPreTraining(config)


def rope_parameters(case):
    scaling = case.get("rope_scaling", {"type": "none"})
    parameters = {"rope_theta": float(case.get("rope_theta", 10000)),
                  "rope_type": {"none": "default"}.get(scaling["type"], scaling["type"])}
    names = {"factor": "factor", "low_frequency_factor": "low_freq_factor", "high_frequency_factor": "high_freq_factor",
             "original_positions": "original_max_position_embeddings"}
    return parameters | {names[key]: x for key, x in scaling.items() if key != "type"}


# Properties of each class that its configuration does not contain.
LLAMAS = {
    "Llama": lambda case: dict(attention_bias=case["attention_bias"] == "all",
                               mlp_bias=case.get("feed_forward_bias", False)),
    "Mistral": lambda case: dict(sliding_window=case.get("sliding_window")),
    "Qwen2": lambda case: dict(use_sliding_window=False),
    "Qwen3": lambda case: dict(attention_bias=case["attention_bias"] == "all", use_sliding_window=False),
}


def llama(case):
    name = case["class"]
    config = getattr(transformers, name + "Config")(
        vocab_size=case["vocabulary"], max_position_embeddings=case["positions"], hidden_size=case["hidden"],
        num_hidden_layers=case["layers"], num_attention_heads=case["heads"], intermediate_size=case["feed_forward"],
        num_key_value_heads=case["key_value_heads"], head_dim=case["head_size"], rms_norm_eps=case["norm_epsilon"],
        tie_word_embeddings=case["tied"], rope_parameters=rope_parameters(case), hidden_act="silu",
        attention_dropout=0.0, use_cache=False, pad_token_id=None, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager", **LLAMAS[name](case))
    return getattr(transformers, name + "ForCausalLM")(config)


def exact_norm(self, hidden):
    return self.weight * (hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def exact_rotation(case):
    """Computes angles in float64 instead of float32."""
    size = case["head_size"]
    frequencies = [case.get("rope_theta", 10000) ** (-2 * j / size) for j in range(size // 2)]
    scaling = case.get("rope_scaling", {"type": "none"})
    if scaling["type"] == "linear":
        frequencies = [f / scaling["factor"] for f in frequencies]
    if scaling["type"] == "llama3":
        low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]

        def scaled(frequency):
            turns = scaling["original_positions"] * frequency / (2 * math.pi)
            if turns > high:
                return frequency
            if turns < low:
                return frequency / scaling["factor"]
            smooth = (turns - low) / (high - low)
            return (1 - smooth) * frequency / scaling["factor"] + smooth * frequency
        frequencies = [scaled(f) for f in frequencies]

    def forward(self, hidden, position_ids):
        angles = position_ids[..., None].double() * torch.tensor(frequencies, dtype=torch.float64)
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()
    return forward


def make_exact(model, case):
    """transformers computes norms, rotary positions and the softmax of eager attention in float32, even in float64
    models."""
    model.double()
    if case["family"] != "llama":
        return
    model.set_attn_implementation("sdpa")
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(exact_norm, module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = types.MethodType(exact_rotation(case), module)


BUILDERS = {"gpt2": gpt2, "bert": bert, "llama": llama}


def build(case, dtype):
    """Returns the model with random weights. The weights for float32 are rounded from float64."""
    model = BUILDERS[case["family"]](case).float()
    randomise(model)
    if dtype == torch.float64:
        make_exact(model, case)
    if case["family"] == "bert" and not case["tied"]:
        # An untied decoder has two biases, and forward uses only decoder.bias. The file omits the other.
        head = model.cls.predictions
        with torch.no_grad():
            head.bias.zero_()
        head.bias.requires_grad_(False)
    return model.eval()


def name_of(parameter):
    """Returns Chimera's name for a parameter of transformers."""
    return parameter.removeprefix("transformer.").replace("cls.predictions.decoder.bias", "cls.predictions.bias")


def inputs_of(case, sequences, length):
    tokens = torch.randint(case["vocabulary"], (sequences, length))
    if case["family"] != "bert":
        targets = torch.cat([tokens[:, 1:], torch.full((sequences, 1), IGNORED)], dim=1)
        targets[-1, 2] = IGNORED
        return dict(tokens=tokens, targets=targets)
    ends = torch.randint(3, length + 1, (sequences, 1))
    targets = torch.where(torch.rand(sequences, length) < 0.4, tokens, IGNORED)
    targets[0, 0] = 1
    return dict(tokens=tokens, targets=targets,
                token_types=(torch.arange(length) >= length // 2).long().repeat(sequences, 1),
                attention_mask=torch.arange(length) < ends, next_sentence=torch.randint(2, (sequences,)))


def run(model, inputs):
    """Returns logits, loss and gradients by Chimera's names."""
    model.zero_grad()
    targets = inputs["targets"]
    results = {}
    if "token_types" in inputs:
        output = model(input_ids=inputs["tokens"], token_type_ids=inputs["token_types"],
                       attention_mask=inputs["attention_mask"].long())
        results["logits"] = output.prediction_logits
        results["sentence_logits"] = output.seq_relationship_logits
        loss = cross_entropy(output.seq_relationship_logits, inputs["next_sentence"])
    else:
        results["logits"] = model(input_ids=inputs["tokens"]).logits
        loss = 0
    loss = loss + cross_entropy(results["logits"].flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    loss.backward()
    results["loss"] = loss
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            results[f"gradients/{name_of(name)}"] = parameter.grad
    return {name: tensor.detach().clone() for name, tensor in results.items()}


def loss_of(model, batch):
    """Returns the loss of one batch written by `chimera bench --export`."""
    targets = batch["targets"].flatten()
    if "token_types" not in batch:
        return cross_entropy(model(input_ids=batch["tokens"]).logits.flatten(0, 1), targets).item()
    output = model(input_ids=batch["tokens"], token_type_ids=batch["token_types"])
    return (cross_entropy(output.prediction_logits.flatten(0, 1), targets) +
            cross_entropy(output.seq_relationship_logits, batch["next_sentence"])).item()


def weights_of(model):
    return {f"weights/{name_of(name)}": parameter.detach().clone() for name, parameter in model.named_parameters()
            if parameter.requires_grad}


def save(path, case, dtype, *tensors):
    """Writes tensors, with the model file, the type and the package versions as metadata."""
    everything = {name: tensor.contiguous() for some in tensors for name, tensor in some.items()}
    metadata = dict(model_file=toml(case), dtype=str(dtype).removeprefix("torch."), torch=torch.__version__,
                    transformers=transformers.__version__)
    safetensors.torch.save_file(everything, path, metadata)
