"""PipelineTrainer: equality with transformers' Trainer, refusals, and its recipe."""

import difflib
import functools
import importlib
import inspect
import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from forked_ranks import forked
from models import oracle
from test_recipes import RECIPES

oracle("transformers")
oracle("accelerate")
from accelerate.commands import launch  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig, BertForMaskedLM, BertForSequenceClassification, DefaultFlowCallback, GPT2Config, GPT2LMHeadModel,
    PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, Trainer, TrainerCallback, TrainingArguments,
)

import chimerapipe as cp  # noqa: E402
from chimerapipe.hugging_face import PipelineMixin, PipelineTrainer, _reads_model  # noqa: E402

PROGRAMS = Path(__file__).parents[3] / "tests" / "python"
RECIPE = dict(RECIPES)["Trainer"]


def test_losses_and_weights_equal_those_of_the_plain_trainer(tmp_path):
    forked(0, PROGRAMS / "trainer_jobs.py", tmp_path, seconds=400)


def test_the_recipe_runs_under_accelerate_launch(tmp_path):
    """trainer_jobs.py starts processes as torchrun does."""
    told = 'print(f"rank {torch.distributed.get_rank()} of {torch.distributed.get_world_size()}")\n'
    (tmp_path / "recipe.py").write_text(RECIPE + told)
    flags = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no"]  # The recipe takes the CPU
    printed = forked(0, launch.__file__, *flags, "recipe.py", folder=tmp_path)
    assert printed.count("'train_loss'") == 1
    assert {"rank 0 of 2", "rank 1 of 2"} <= set(printed.splitlines()), printed


def tokenizer_of(words):
    tokenizers = oracle("tokenizers")
    numbers = {word: number for number, word in enumerate(["<pad>", "<eos>", *words])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", mask_token="<mask>")


def history(folder):
    """Returns the losses and norms that a run has logged, of updates and evaluations."""
    newest = max(folder.glob("tuned/checkpoint-*"), key=lambda each: int(each.name.partition("-")[2]))
    logs = json.loads((newest / "trainer_state.json").read_text())["log_history"]
    return [each[name] for each in logs for name in ("loss", "grad_norm", "eval_loss") if name in each]


LINES_OF_A_PIPELINE = (
    ("\ntokenizer =", "from chimerapipe.hugging_face import PipelineTrainer\n\ntokenizer ="),
    ("    gradient_checkpointing=True,\n", ""),
    ("trainer = Trainer(\n", 'trainer = PipelineTrainer(schedule="chimera", recompute=True,\n'),
)


def test_three_lines_make_a_pipeline_of_the_tutorial_with_the_same_losses(tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    given = tmp_path / "given"
    files_of_tutorial(given, Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=8, num_hidden_layers=4, vocab_size=20)))
    plain = piped = PROGRAMS.joinpath("trainer_tutorial.py").read_text()
    for before, after in LINES_OF_A_PIPELINE:
        assert piped.count(before) == 1
        piped = piped.replace(before, after)
    changes = difflib.SequenceMatcher(None, plain.splitlines(), piped.splitlines(), autojunk=False).get_opcodes()
    assert sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in changes if kind != "equal") == 3
    logged = [logs_of_tutorial(tmp_path, given, *each) for each in ((0, "plain", plain), (2, "piped", piped))]
    assert len(logged[0]) == len(logged[1]) == 18
    assert max(abs(a - b) / a for a, b in zip(*logged, strict=True)) < 1e-5, logged  # float32


def files_of_tutorial(folder, model):
    oracle("datasets")
    words = [f"w{n}" for n in range(17)]
    model.save_pretrained(folder / "model")
    tokenizer_of(["<mask>", *words]).save_pretrained(folder / "model")
    texts = [{"text": " ".join(words[(k + n) % 17] for n in range(6 + k % 5))} for k in range(60)]
    (folder / "texts.json").write_text("\n".join(map(json.dumps, texts)))


def logs_of_tutorial(folder, given, ranks, name, program):
    shutil.copytree(given, folder / name)
    (folder / name / "program.py").write_text(program)
    forked(ranks, "program.py", folder=folder / name)
    return history(folder / name)


def bert_with_dropout():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 4}
    return BertForMaskedLM(BertConfig(**sizes, vocab_size=20))


OF_MASKED_WORDS = (("AutoModelForCausalLM", "AutoModelForMaskedLM"), ("mlm=False", "mlm_probability=0.3"))


GPT2_WITH_DROPOUT = (lambda: small_model(n_layer=4, n_embd=16), ())


@pytest.mark.parametrize(("make", "changes"), [GPT2_WITH_DROPOUT, (bert_with_dropout, OF_MASKED_WORDS)])
def test_fine_tuning_with_dropout_has_equal_losses_by_all_schedules(make, changes, tmp_path):
    """Dropout is 0.1, and the collator of masked words draws. Three changed lines, on two processes and on threads."""
    torch.manual_seed(1)
    files_of_tutorial(tmp_path / "given", make())
    program = PROGRAMS.joinpath("trainer_tutorial.py").read_text()
    for before, after in (*changes, *LINES_OF_A_PIPELINE):
        program = program.replace(before, after)
    logged = []
    for ranks, schedule, recompute in ((2, "chimera-zb", False), (2, "1f1b", True), (0, "zb-h1", False)):
        line = f'PipelineTrainer(schedule="{schedule}", recompute={recompute},'
        piped = program.replace('PipelineTrainer(schedule="chimera", recompute=True,', line)
        logged.append(logs_of_tutorial(tmp_path, tmp_path / "given", ranks, schedule, piped))
    assert len(set(logged[0])) == len(logged[0]) == 18
    for other in logged[1:]:
        assert max(abs(a - b) / a for a, b in zip(logged[0], other, strict=True)) < 1e-5, logged  # float32


def on_cpu(folder, **more):
    return TrainingArguments(folder, use_cpu=True, report_to=[], **more)


def small_model(**sizes):
    return GPT2LMHeadModel(GPT2Config(**{"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 20, **sizes}))


def without_dropout():
    return small_model(embd_pdrop=0, resid_pdrop=0, attn_pdrop=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"neftune_noise_alpha": 1.0}, "neftune_noise_alpha"),
        ({"gradient_checkpointing": True}, "recompute=True"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"optim": "galore_adamw_layerwise", "optim_target_modules": ["attn"]}, "optim: galore_adamw_layerwise"),
        ({"accelerator_config": {"dispatch_batches": True}}, "dispatch_batches"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_arguments_that_cannot_work_are_refused_by_name(given, words, tmp_path):
    arguments = on_cpu(tmp_path, **given)
    with pytest.raises(cp.ConfigError, match=words):
        PipelineTrainer(model=small_model(), args=arguments, schedule=cp.schedule("1f1b", 2, 1))


def test_schedules_and_groups_that_do_not_fit_are_refused(tmp_path):
    arguments = on_cpu(tmp_path, gradient_accumulation_steps=2)
    with pytest.raises(cp.ConfigError, match="gradient_accumulation_steps is 2"):
        PipelineTrainer(small_model(), arguments, schedule=cp.schedule("1f1b", 2, 4))
    with pytest.raises(cp.ConfigError, match="data_parallel: got 2"):
        PipelineTrainer(small_model(), arguments, data_parallel=2)


def test_a_loss_of_a_subclass_is_refused(tmp_path):
    class Weighted(PipelineTrainer):
        def compute_loss(self, model, inputs, **named):
            return super().compute_loss(model, inputs, **named) / 2

    with pytest.raises(cp.ConfigError, match="compute_loss: Weighted overrides it"):
        Weighted(model=small_model(), args=on_cpu(tmp_path))


def regression(samples, has_labels=True):
    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    no_dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    model = BertForSequenceClassification(BertConfig(**sizes, **no_dropout, vocab_size=20, num_labels=1))
    labels = [{"labels": float(k)} if has_labels else {} for k in range(samples)]
    return model, [{"input_ids": torch.randint(20, (5,)), **label} for label in labels]


def test_predictions_equal_those_of_the_plain_trainer(tmp_path):
    model, data = regression(7, has_labels=False)
    arguments = on_cpu(tmp_path, per_device_train_batch_size=2, per_device_eval_batch_size=5)
    expected = Trainer(model, arguments).predict(data)
    found = PipelineTrainer(model, arguments, schedule=cp.schedule("1f1b", 2, 1)).predict(data)
    assert found.predictions.shape == (7, 1) and found.label_ids is None
    assert abs(found.predictions - expected.predictions).max() < 1e-6  # float32


def test_samples_that_the_loss_cannot_ignore_are_refused(tmp_path):
    model, data = regression(7)
    arguments = on_cpu(tmp_path, per_device_train_batch_size=2)
    trainer = PipelineTrainer(model, arguments, train_dataset=data, schedule=cp.schedule("1f1b", 2, 1))
    with pytest.raises(cp.ConfigError, match="set dataloader_drop_last"):
        trainer.train()
    expected = Trainer(model, arguments).evaluate(data[:6])["eval_loss"]
    assert abs(trainer.evaluate(data[:6])["eval_loss"] - expected) < 1e-5 * expected  # float32


COMMON_OF_TRL = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": []}


def tuned(bases, folder, rows, config, **more):
    """Returns a trainer by TRL after its run."""
    trl, datasets = oracle("trl"), oracle("datasets")
    torch.manual_seed(1)
    trainer = type("Tuner", bases, {})(
        model=without_dropout().double(),
        args=trl.SFTConfig(str(folder), **COMMON_OF_TRL, save_strategy="no", disable_tqdm=True, **config),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer_of([f"w{n}" for n in range(18)]),
        **more,
    )
    trainer.train()
    return trainer


def test_trl_trains_by_a_pipeline(tmp_path):
    trl = oracle("trl")
    rows = [{"input_ids": [1 + (k + n) % 19 for n in range(6 + k % 3)]} for k in range(16)]
    given = tmp_path, rows, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 3}
    expected = tuned((trl.SFTTrainer,), *given).model.state_dict()
    found = tuned((PipelineMixin, trl.SFTTrainer), *given, schedule="chimera").model.state_dict()
    worst = max(float((found[name] - value).abs().max()) for name, value in expected.items())
    assert worst < 1e-7, worst  # TRL adds up its losses in another way


@pytest.mark.parametrize(
    ("given", "way_out"),
    [
        ("peft_config", "give model=peft.get_peft_model(model, peft_config), or derive from PipelineMixin and"),
        ("formatting_func", "format the texts of the data set first, or derive from PipelineMixin and trl.SFTTrainer"),
        ("ref_model", "a pipeline trains one model"),
        ("reward_funcs", "a pipeline trains with the model's own loss"),
    ],
)
def test_arguments_of_other_trainers_are_refused_with_the_way_out(given, way_out, tmp_path):
    trl = oracle("trl")
    arguments = on_cpu(tmp_path)
    for base, name in ((Trainer, "Tuner"), (trl.SFTTrainer, "Tuner"), (trl.DPOTrainer, "DPOTrainer: its loss needs")):
        tuner = type("Tuner", (PipelineMixin, base), {})
        if base is trl.SFTTrainer and given in inspect.signature(base).parameters:
            continue  # It takes it: see below
        words = name if base is trl.DPOTrainer else f"^{given}: {name} does not take it; {re.escape(way_out)}"
        with pytest.raises(cp.ConfigError, match=words):
            tuner(model=small_model(), args=arguments, **{given: None})


def test_trl_adapts_and_formats_for_a_pipeline(tmp_path):
    trl, peft = oracle("trl"), oracle("peft")
    losses = []
    for bases, more in (((trl.SFTTrainer,), {}), ((PipelineMixin, trl.SFTTrainer), {"schedule": "chimera"})):
        adapter = peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True)
        more |= {"formatting_func": lambda row: f"w1 w2 {row['word']} w3", "peft_config": adapter}
        rows = [{"word": f"w{n}"} for n in range(16)]
        trainer = tuned(bases, tmp_path, rows, {"max_steps": 2, "logging_steps": 1}, **more)
        losses.append([each["loss"] for each in trainer.state.log_history if "loss" in each])
        trained = [name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad]
        assert trained and all("lora" in name for name in trained)
    assert len(losses[0]) == 2 and losses[1] == pytest.approx(losses[0], rel=1e-4)


def losses_and_weights(kind, data, folder, make=small_model, collator=None, accumulation=2, **more):
    torch.manual_seed(1)
    options = more.pop("arguments", {})
    arguments = on_cpu(
        folder, per_device_train_batch_size=1, gradient_accumulation_steps=accumulation, logging_steps=1, optim="sgd",
        learning_rate=0.1, lr_scheduler_type="constant", **options,
    )
    trainer = kind(make().double(), arguments, train_dataset=data, data_collator=collator, **more)
    trainer.train()
    return [each["loss"] for each in trainer.state.log_history if "loss" in each], trainer.model.state_dict()


def texts(count, labeled=True):
    torch.manual_seed(2)
    ids = [torch.randint(20, (5,)) for _ in range(count)]
    return [{"input_ids": each, **({"labels": each} if labeled else {})} for each in ids]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(texts(5))


@pytest.mark.parametrize(
    ("data", "arguments"),
    [(Stream(), {"max_steps": 5}), (texts(4), {"max_steps": 3, "label_names": ["others"]})],
    ids=["an iterable without a whole number of updates", "other names of labels"],
)
def test_updates_are_those_of_the_plain_trainer(data, arguments, tmp_path):
    given = {"make": without_dropout, "arguments": arguments}
    expected = losses_and_weights(Trainer, data, tmp_path, **given)
    found = losses_and_weights(PipelineTrainer, data, tmp_path, schedule="chimera", **given)
    assert found[0] == pytest.approx(expected[0], rel=1e-6) and len(found[0]) == arguments["max_steps"]
    for name, value in expected[1].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-9, msg=name)


def test_a_batch_without_a_loss_is_refused_as_by_the_plain_trainer(tmp_path):
    for kind, more in ((Trainer, {}), (PipelineTrainer, {"schedule": "1f1b"})):
        with pytest.raises(ValueError, match="The model did not return a loss from the inputs"):
            losses_and_weights(kind, texts(4, labeled=False), tmp_path, **more)


def test_a_loss_that_is_not_finite_ends_no_run(tmp_path):
    def loss(outputs, labels, num_items_in_batch=None):
        return outputs["logits"].sum() * torch.nan

    given = {"compute_loss_func": loss, "arguments": {"max_steps": 2, "logging_nan_inf_filter": False}}
    for kind, more in ((Trainer, {}), (PipelineTrainer, {"schedule": "chimera"})):
        losses, _ = losses_and_weights(kind, texts(4), tmp_path, **given, **more)
        assert len(losses) == 2 and all(map(math.isnan, losses))


def test_losses_with_dropout_are_equal_over_schedules(tmp_path):
    """With collators that draw."""

    def collated(samples):
        return {name: torch.stack([each[name] for each in samples]) + torch.randint(1, ()) for name in samples[0]}

    runs = [
        losses_and_weights(PipelineTrainer, texts(8), tmp_path, schedule=schedule, collator=collated, **more)[0]
        for schedule in ("1f1b", "chimera", "chimera-zb", "zb-h1")
        for more in ({}, {"recompute": True})
    ]
    assert len(set(runs[0])) == len(runs[0]) == 12
    for run in runs[1:]:
        assert run == pytest.approx(runs[0], rel=1e-9)


def test_trainers_of_trl_with_other_losses_are_refused_by_name(tmp_path):
    trl = oracle("trl")
    cpo, orpo = (importlib.import_module(f"trl.experimental.{name}") for name in ("cpo", "orpo"))
    for kind, config, words in (
        (trl.DPOTrainer, trl.DPOConfig, "DPOTrainer: its loss needs more than one forward"),
        (trl.KTOTrainer, trl.KTOConfig, "KTOTrainer: its loss needs"),
        (trl.RewardTrainer, trl.RewardConfig, "RewardTrainer: its loss needs"),
        (cpo.CPOTrainer, cpo.CPOConfig, "CPOTrainer: its loss needs"),
        (orpo.ORPOTrainer, orpo.ORPOConfig, "ORPOTrainer: its loss needs"),
        (trl.SFTTrainer, functools.partial(trl.SFTConfig, loss_type="dft"), "loss_type: a pipeline cannot use dft"),
        (trl.SFTTrainer, functools.partial(trl.SFTConfig, packing=True), "packing: a pipeline cannot use it; give"),
    ):
        tuner = type("Tuner", (PipelineMixin, kind), {})
        with pytest.raises(cp.ConfigError, match=words):
            tuner(model=small_model(), args=config(str(tmp_path), **COMMON_OF_TRL), peft_config=None)
    with pytest.raises(cp.ConfigError, match="give gradient_checkpointing=False, and recompute=True to the trainer"):
        tuner(model=small_model(), args=trl.SFTConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[]))


class Saves(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **named):
        self.seen = {name: value.clone() for name, value in model.state_dict().items()}


def test_callbacks_that_read_the_model_are_found():
    class Counts(TrainerCallback):
        def on_step_end(self, args, state, control, **named):
            state.seen = 1

    class Passes(TrainerCallback):
        def on_step_end(self, *args, **named):
            Saves().on_step_end(*args, **named)

    class Holds(TrainerCallback):
        def on_step_end(self, args, state, control, **named):
            self.trainer.save_model()

    callbacks = [Saves(), Counts(), Passes(), Holds(), DefaultFlowCallback()]
    found = [_reads_model(each, "on_step_end") for each in callbacks]
    assert found == [True, False, True, True, False]
    assert not _reads_model(Saves(), "on_log")
    for kind in (Counts, DefaultFlowCallback):
        assigned = kind()
        assigned.on_step_end = lambda args, state, control, model=None, **named: model.state_dict()
        assert _reads_model(assigned, "on_step_end")
        assigned.on_step_end = Saves().on_step_end
        assert _reads_model(assigned, "on_step_end")
