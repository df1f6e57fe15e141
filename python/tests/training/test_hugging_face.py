"""Models of transformers on rank threads, compared with the unpipelined model."""

import functools

import pytest
import torch
from hugging_face_models import ENCODER, MODELS, SIZES, batch_of, llama, loss_of, transformers, unpipelined
from models import oracle
from users import SCHEDULES, refused

import chimerapipe as cp


def expect_equal_gradients(model, pipeline, inputs, targets, expected):
    loss, gradients = expected
    step = pipeline.step(inputs, targets)
    assert step.loss == pytest.approx(loss, rel=1e-10)
    named = dict(model.named_parameters(remove_duplicate=False))
    assert gradients
    for name, parameter in ((name, named[name]) for name in gradients):
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-10, msg=f"{name} of {type(model)}")


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_model_itself(name):
    model = MODELS[name]()
    inputs, targets = batch_of(name)
    expected = unpipelined(model, inputs, targets)
    layers = cp.layers_of(model)
    for schedule in SCHEDULES:
        pipeline = cp.Pipeline(layers, loss_of, cp.schedule(schedule, 4, 4))
        expect_equal_gradients(model, pipeline, inputs, targets, expected)
    validated = pipeline.validate(inputs, targets)
    assert validated == pytest.approx(expected[0], rel=1e-10)
    state = model.state_dict()
    assert pipeline.state_dict().keys() == state.keys()
    assert {name for name, _ in pipeline.named_parameters()} <= dict(model.named_parameters()).keys()


def test_models_that_cannot_be_cut_are_refused_in_a_line():
    for model, words in (
        (torch.nn.Linear(2, 2), "expected a model of transformers, not Linear"),
        (llama(num_hidden_layers=0), "cannot be cut into layers: it has no ModuleList"),
        (llama().to("meta"), "cannot be cut into layers: its weights are on the device meta"),
    ):
        refused(lambda model=model: cp.layers_of(model), words, cp.ConfigError)


def test_models_with_blocks_of_another_kind_are_refused_with_the_reason():
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "hidden_size_per_layer_input": 4}
    rwkv = {"context_length": 16, "attention_hidden_size": 16, "rescale_every": 2}
    own = {"vocab_size_per_layer_input": 50, "laurel_rank": 4, "num_kv_shared_layers": 0}
    own |= {"layer_types": ["full_attention"] * 4, "activation_sparsity_pattern": [0.0] * 4}
    for made, words in (
        (lambda t: t.RwkvForCausalLM(t.RwkvConfig(**sizes, **rwkv)), "its forward reads 'attention' of blocks, which"),
        (lambda t: t.Gemma3nForCausalLM(t.Gemma3nTextConfig(**sizes, **heads, **own)), "take embeddings of their own"),
    ):
        model = made(transformers)
        error = refused(lambda model=model: cp.layers_of(model), words, cp.ConfigError)
        assert type(model).__name__ in str(error)


SEVERAL = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
SEVERAL |= {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 50, "pad_token_id": 0}
SPEECH = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
SPEECH |= {"conv_dim": (8,), "conv_stride": (2,), "conv_kernel": (3,), "num_feat_extract_layers": 1}
SPEECH |= {"num_conv_pos_embedding_groups": 2}
SPECTRUM = {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16}
IMAGES = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}
WORDS = torch.ones(2, 4, dtype=torch.long)


@pytest.mark.parametrize(
    ("kind", "sizes", "example"),
    [
        ("Bart", SEVERAL, None),
        ("Pegasus", SEVERAL, None),
        ("Whisper", SEVERAL | SPECTRUM, {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": WORDS}),
        ("Swin", IMAGES, None),
        ("Wav2Vec2", SPEECH | {"layerdrop": 0.0}, {"input_values": torch.randn(2, 400)}),
    ],
)
def test_models_that_join_layers_are_refused_with_the_way_out(kind, sizes, example):
    heads = {"Swin": "ImageClassification", "Wav2Vec2": "CTC"}
    name = f"{kind}For{heads.get(kind, 'ConditionalGeneration')}"
    model = getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**sizes))
    if model.main_input_name not in ("input_ids", "pixel_values"):
        refused(lambda: cp.layers_of(model), f"{name} takes {model.main_input_name}; give an example", cp.ConfigError)
    words = "; its forward joins values of several layers. Give its parts as a list of layers instead, as in docs/"
    refused(lambda: cp.layers_of(model, example), words, cp.ConfigError)


def test_a_model_is_profiled_by_its_layers():
    inputs, _ = batch_of("llama", 2)
    found = cp.profile(llama(), inputs, repeats=1)
    assert len(found) == 4 and found[3].weights == 16 * 31 * 8 + 16 * 8  # Head and norm, in float64
    # Hidden states, token ids and masks; integers take a number per byte
    assert found[0].output == 8 * (2 * 5 * 16 + 2 * 2 * 5 * 8)
    best = cp.plan(found, workers=2, mini_batch=4, stages=[2], memory=1e9).best
    assert sum(best.partition) == 4
    cut = cp.partition(llama(), 2, inputs, memory=1e9)
    assert sum(cut.layers) == 4 and cut.layer_costs[3].weights == found[3].weights


def test_adapters_of_peft_train_and_frozen_bits_stay():
    peft = oracle("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(llama(), config)
    frozen = {name: value.clone() for name, value in adapted.named_parameters() if not value.requires_grad}
    inputs, targets = batch_of("llama")
    expected = unpipelined(adapted, inputs, targets)
    for schedule in SCHEDULES:
        pipeline = cp.Pipeline(adapted, loss_of, cp.schedule(schedule, 2, 4))
        expect_equal_gradients(adapted, pipeline, inputs, targets, expected)
    pipeline.step(inputs, targets, optimizer=torch.optim.AdamW(pipeline.parameters(), lr=0.1, weight_decay=0.1))
    for name, value in adapted.named_parameters():
        assert not value.requires_grad or "lora" in name
        assert value.requires_grad or torch.equal(value, frozen[name]), name


def test_adapters_of_peft_with_tied_weights_are_refused_by_name():
    peft = oracle("peft")
    config = peft.LoraConfig(r=2, target_modules=["embed_tokens"], ensure_weight_tying=True)
    adapted = peft.get_peft_model(llama(tie_word_embeddings=True), config)
    words = "lm_head cannot be copied: attribute 'kwargs': has tensors .* ensure_weight_tying"
    with pytest.raises(cp.ConfigError, match=words):
        cp.layers_of(adapted)


def test_a_model_without_a_head_gives_its_pooled_result_too():
    config = transformers.BertConfig(**ENCODER, **SIZES)
    model, ids = transformers.BertModel(config).double().eval(), torch.randint(31, (4, 5))
    model(ids).pooler_output.square().sum().div(4).backward()
    expected = model.pooler.dense.weight.grad.clone()
    pooled = lambda output, target: (output["pooler_output"] - target).square().sum()
    pipeline = cp.Pipeline(model, pooled, cp.schedule("1f1b", 2, 4), count=len)
    pipeline.step(ids, torch.zeros(4, 16).double())
    torch.testing.assert_close(model.pooler.dense.weight.grad, expected, rtol=0, atol=1e-12)
    alone = cp.layers_of(transformers.BertModel(config, add_pooling_layer=False))
    assert torch.nn.Sequential(*alone)(ids).shape == (4, 5, 16)


def test_a_model_with_several_results_gives_them_by_name():
    """A head for answers has two; both train."""
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**ENCODER, **SIZES)).double()
    ids, spans = torch.randint(31, (4, 5)), torch.randint(5, (4, 2))

    def loss_of_spans(output, spans):
        entropy = torch.nn.functional.cross_entropy
        logits = zip((output["start_logits"], output["end_logits"]), spans.T, strict=True)
        return sum(entropy(each, wanted, reduction="sum") for each, wanted in logits)

    expected = loss_of_spans(model(ids), spans) / 8
    expected.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for schedule in SCHEDULES:
        pipeline = cp.Pipeline(model, loss_of_spans, cp.schedule(schedule, 2, 4))
        expect_equal_gradients(model, pipeline, ids, spans, (expected.item(), gradients))


def test_dropout_between_blocks_draws_once_and_modes_follow_the_model():
    config = transformers.T5Config(vocab_size=31, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2)
    model = transformers.T5ForConditionalGeneration(config).double().eval()
    inputs, targets = batch_of("t5")
    layers = cp.layers_of(model)
    modes = [module.training for module in model.modules()]
    through = lambda value: functools.reduce(lambda before, layer: layer(before), layers, value)
    value = through(inputs)
    assert not any(modes)
    torch.testing.assert_close(value, model(**inputs).logits, rtol=0, atol=1e-12)
    model.train()
    torch.manual_seed(3)
    expected = model(**inputs).logits
    torch.manual_seed(3)
    torch.testing.assert_close(through(inputs), expected, rtol=0, atol=1e-12)
