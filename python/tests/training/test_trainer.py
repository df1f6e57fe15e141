"""PipelineTrainer: equality with transformers' Trainer, refusals, and its recipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models import oracle
from test_processes import run_python
from test_recipes import RECIPES

oracle("transformers")
oracle("accelerate")
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

import chimerapipe as cp  # noqa: E402
from chimerapipe.hugging_face import PipelineMixin, PipelineTrainer  # noqa: E402

HERE = Path(__file__).parent
RECIPE = dict(RECIPES)["Trainer"]


def test_losses_and_weights_equal_those_of_the_plain_trainer(tmp_path):
    run = run_python(HERE / "trainer_jobs.py", tmp_path, seconds=400)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_recipe_runs_under_accelerate_launch(tmp_path):
    """trainer_jobs.py starts processes as torchrun does."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    command = ["accelerate.commands.launch", "--cpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no"]
    program = [sys.executable, "-m", *command, "recipe.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.path.abspath(os.environ["PYTHONPATH"])}
    run = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stderr
    assert "'train_loss'" in run.stdout


def small_model():
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=20))


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
    arguments = TrainingArguments(tmp_path, use_cpu=True, report_to=[], **given)
    with pytest.raises(cp.ConfigError, match=words):
        PipelineTrainer(model=small_model(), args=arguments, schedule=cp.schedule("1f1b", 2, 1))


def test_schedules_and_groups_that_do_not_fit_are_refused(tmp_path):
    arguments = TrainingArguments(tmp_path, use_cpu=True, report_to=[], gradient_accumulation_steps=2)
    with pytest.raises(cp.ConfigError, match="gradient_accumulation_steps is 2"):
        PipelineTrainer(small_model(), arguments, schedule=cp.schedule("1f1b", 2, 4))
    with pytest.raises(cp.ConfigError, match="data_parallel: got 2"):
        PipelineTrainer(small_model(), arguments, data_parallel=2)


def test_a_loss_of_a_subclass_is_refused(tmp_path):
    class Weighted(PipelineTrainer):
        def compute_loss(self, model, inputs, **named):
            return super().compute_loss(model, inputs, **named) / 2

    with pytest.raises(cp.ConfigError, match="compute_loss: Weighted overrides it"):
        Weighted(model=small_model(), args=TrainingArguments(tmp_path, use_cpu=True, report_to=[]))


def regression(samples, has_labels=True):
    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    no_dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    model = BertForSequenceClassification(BertConfig(**sizes, **no_dropout, vocab_size=20, num_labels=1))
    labels = [{"labels": float(k)} if has_labels else {} for k in range(samples)]
    return model, [{"input_ids": torch.randint(20, (5,)), **label} for label in labels]


def test_predictions_equal_those_of_the_plain_trainer(tmp_path):
    model, data = regression(7, has_labels=False)
    arguments = TrainingArguments(
        tmp_path, use_cpu=True, report_to=[], per_device_train_batch_size=2, per_device_eval_batch_size=5
    )
    expected = Trainer(model, arguments).predict(data)
    found = PipelineTrainer(model, arguments, schedule=cp.schedule("1f1b", 2, 1)).predict(data)
    assert found.predictions.shape == (7, 1) and found.label_ids is None
    assert abs(found.predictions - expected.predictions).max() < 1e-6  # float32


def test_samples_that_the_loss_cannot_ignore_are_refused(tmp_path):
    model, data = regression(7)
    arguments = TrainingArguments(tmp_path, use_cpu=True, report_to=[], per_device_train_batch_size=2)
    trainer = PipelineTrainer(model, arguments, train_dataset=data, schedule=cp.schedule("1f1b", 2, 1))
    with pytest.raises(cp.ConfigError, match="set dataloader_drop_last"):
        trainer.train()
    expected = Trainer(model, arguments).evaluate(data[:6])["eval_loss"]
    assert abs(trainer.evaluate(data[:6])["eval_loss"] - expected) < 1e-5 * expected  # float32


def test_trl_trains_by_a_pipeline(tmp_path):
    trl, datasets, tokenizers = oracle("trl"), oracle("datasets"), oracle("tokenizers")
    words = {word: number for number, word in enumerate(["<pad>", "<eos>", *(f"w{n}" for n in range(18))])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    rows = [{"input_ids": [1 + (k + n) % 19 for n in range(6 + k % 3)]} for k in range(16)]
    arguments = trl.SFTConfig(
        str(tmp_path),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=3,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )

    def weights(bases, **more):
        torch.manual_seed(1)
        no_dropout = {"embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0}
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=20, **no_dropout)).double()
        data = datasets.Dataset.from_list(rows)
        trainer = type("Tuner", bases, {})(
            model=model, args=arguments, train_dataset=data, processing_class=tokenizer, **more
        )
        trainer.train()
        return trainer.model.state_dict()

    expected = weights((trl.SFTTrainer,))
    found = weights((PipelineMixin, trl.SFTTrainer), schedule="chimera")
    worst = max(float((found[name] - value).abs().max()) for name, value in expected.items())
    assert worst < 1e-7, worst  # TRL adds up its losses in another way
