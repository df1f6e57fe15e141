"""Compares PipelineTrainer on two and four processes with transformers.Trainer on one. Usage: trainer_jobs.py FOLDER"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from forked_ranks import launch
from peft import LoraConfig, get_peft_model
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from chimerapipe.hugging_face import PipelineTrainer

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "vocab_size": 40}
NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
N = 4  # Micro-batches


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_head=2, n_embd=16, vocab_size=40, embd_pdrop=0, resid_pdrop=0, attn_pdrop=0)
    )


def llama():
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))


def masked_words():
    return BertForMaskedLM(BertConfig(**SIZES, **NO_DROPOUT))


def classifier():
    return BertForSequenceClassification(BertConfig(**SIZES, **NO_DROPOUT, num_labels=3))


def adapters():
    return get_peft_model(llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))


class Texts(torch.utils.data.Dataset):
    """Texts of several lengths."""

    def __init__(self, model, samples):
        draw = torch.Generator().manual_seed(3)
        self.samples = []
        for index in range(samples):
            tokens = torch.randint(3, 40, (6 + index % 5,), generator=draw)
            sample = {"input_ids": tokens, "labels": tokens.clone()}
            if model.__name__ == "masked_words":
                hidden = torch.rand(len(tokens), generator=draw) < 0.4
                hidden[0] = True
                sample["labels"] = torch.where(hidden, tokens, -100)
                sample["input_ids"] = torch.where(hidden, 2, tokens)
            if model.__name__ == "classifier":
                sample["labels"] = tokens[0] % 3
            self.samples.append(sample)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collated(samples):
    """Pads to the longest text of a batch."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for sample in samples:
        more = longest - len(sample["input_ids"])
        batch["input_ids"].append(torch.nn.functional.pad(sample["input_ids"], (0, more)))
        batch["attention_mask"].append(torch.nn.functional.pad(torch.ones_like(sample["input_ids"]), (0, more)))
        label = sample["labels"]
        batch["labels"].append(torch.nn.functional.pad(label, (0, more), value=-100) if label.dim() else label)
    return {name: torch.stack(values) for name, values in batch.items()}


def accuracy(prediction):
    assert isinstance(prediction.predictions, numpy.ndarray)
    hits = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"accuracy": float(hits.mean()), "sum": float(prediction.predictions.sum())}


class Noted(TrainerCallback):
    """Counts updates, and sums the weights, all of which it sees."""

    def __init__(self):
        self.steps, self.sums = 0, []

    def on_step_end(self, args, state, control, model=None, **named):
        self.steps += 1
        self.sums.append(sum(float(each.detach().double().abs().sum()) for each in model.parameters()))


@dataclass(frozen=True)
class Case:
    make: Callable
    arguments: dict[str, Any] = field(default_factory=dict)
    is_double: bool = True


BEST = {"load_best_model_at_end": True, "metric_for_best_model": "accuracy", "save_total_limit": 1}
CASES = {
    "gpt2": Case(gpt2, {"optim": "sgd"}, is_double=False),  # Adam divides by small gradients
    "llama": Case(llama, {"lr_scheduler_type": "cosine", "warmup_steps": 2, "max_grad_norm": 0.1}),
    "masked words": Case(masked_words),
    "classifier": Case(classifier, BEST),
    "label smoothing": Case(llama, {"label_smoothing_factor": 0.1, "weight_decay": 0.1, "max_steps": 4}),
    "adapters": Case(adapters, {"max_steps": 4, "average_tokens_across_devices": False}),
}


def trainer_of(name, kind, folder, **more):
    case = CASES[name]
    torch.manual_seed(1)
    model = case.make()
    given = {"gradient_accumulation_steps": N, **case.arguments, **more.pop("arguments", {})}
    arguments = TrainingArguments(
        folder / name.replace(" ", "-"),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=5,
        num_train_epochs=2,
        learning_rate=1e-2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=3,
        save_steps=3,
        report_to=["tensorboard"] if name == "gpt2" else [],
        use_cpu=True,
        disable_tqdm=True,
        **given,
    )
    return kind(
        model=model.double() if case.is_double else model,
        args=arguments,
        train_dataset=Texts(case.make, 35),  # The last update has 2 micro-batches, and the last of them one sample
        eval_dataset=Texts(case.make, 11),
        data_collator=collated,
        compute_metrics=accuracy if name == "classifier" else None,
        callbacks=[Noted()],
        **more,
    )


def results(trainer):
    """Returns what must be equal: logs, and metrics of an evaluation."""
    kept = ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy", "eval_sum", "total_flos")
    logs = [{key: each[key] for key in kept if key in each} for each in trainer.state.log_history]
    (noted,) = [each for each in trainer.callback_handler.callbacks if isinstance(each, Noted)]
    metrics = {key: value for key, value in trainer.evaluate().items() if key in kept}
    return {"logs": logs, "metrics": metrics, "steps": noted.steps, "sums": noted.sums}


def plain(folder, name):
    trainer = trainer_of(name, Trainer, folder / "plain")
    trainer.train()
    keep(folder, name, trainer)


def keep(folder, name, trainer):
    (folder / f"{name}.json").write_text(json.dumps(results(trainer)))
    torch.save(trainer.model.state_dict(), folder / f"{name}.pt")


def require_equal(folder, name, trainer, *, has_logs=True):
    """Compares with the plain Trainer. Logs are sums in float32, of 5 numbers below 5."""
    weights = torch.load(folder / f"{name}.pt")
    worst = max(float((value - weights[key]).abs().max()) for key, value in trainer.model.state_dict().items())
    assert worst <= (1e-6 if name == "gpt2" else 1e-10), f"{name}: weights differ by {worst}"
    if not has_logs:
        return
    expected, found = json.loads((folder / f"{name}.json").read_text()), results(trainer)
    assert expected["steps"] == found["steps"], (expected, found)
    sums = zip(expected["sums"], found["sums"], strict=True)
    assert all(abs(theirs - ours) <= 2e-6 * theirs for theirs, ours in sums), (expected["sums"], found["sums"])
    assert len(expected["logs"]) == len(found["logs"]), (expected, found)
    for theirs, ours in zip([*expected["logs"], expected["metrics"]], [*found["logs"], found["metrics"]], strict=True):
        assert theirs.keys() == ours.keys(), (theirs, ours)
        assert all(abs(theirs[key] - ours[key]) <= 2e-6 * max(1, abs(theirs[key])) for key in theirs), (theirs, ours)


def piped(folder, name, ranks):
    trainer = trainer_of(name, PipelineTrainer, folder / f"piped-{ranks}", schedule="1f1b" if ranks == 2 else "chimera")
    trainer.train()
    require_equal(folder, name, trainer)


def resumed(folder, name, kind, source, **more):
    """Goes on from a checkpoint of another Trainer."""
    trainer = trainer_of(name, kind, folder / "resumed", **more)
    trainer.train(resume_from_checkpoint=folder / source / name.replace(" ", "-") / "checkpoint-6")
    require_equal(folder, name, trainer, has_logs=False)


def two_updates(folder, kind, **more):
    """Trains on equal samples: 16 micro-batches, of one process or of two groups."""
    accumulation = N if more else 2 * N
    arguments = {"max_steps": 2, "gradient_accumulation_steps": accumulation}
    trainer = trainer_of("llama", kind, folder / "wide", arguments=arguments, **more)
    trainer.train()
    if more:
        require_equal(folder, "wide", trainer)
    else:
        keep(folder, "wide", trainer)


def on_one_process(folder):
    for name in CASES:
        plain(folder, name)
    two_updates(folder, Trainer)


def on_two_processes(folder):
    for name in CASES:
        piped(folder, name, 2)
    resumed(folder, "llama", PipelineTrainer, "plain", schedule="zb-h1")


def on_four_processes(folder):
    for name in ("gpt2", "llama", "masked words", "classifier"):
        piped(folder, name, 4)
    resumed(folder, "masked words", PipelineTrainer, "piped-2", schedule="1f1b")
    two_updates(folder, PipelineTrainer, data_parallel=2)


def on_one_process_again(folder):
    resumed(folder, "llama", Trainer, "piped-4")


def main():
    folder = Path(sys.argv[1])
    for ranks, job in ((1, on_one_process), (2, on_two_processes), (4, on_four_processes), (1, on_one_process_again)):
        launch(ranks, job, folder)


if __name__ == "__main__":
    main()
