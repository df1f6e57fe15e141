"""Training with Muon against torch.optim.Muon and AdamW on models of transformers.

Usage: muon_test.py CHIMERA [CLASS.TEST...]
"""

import inspect
import json
import random
import sys
import unittest
import unittest.mock

import oracles

torch, transformers = oracles.require("torch", "transformers")
oracles.require("safetensors")
from safetensors.torch import load_file  # noqa: E402
from torch.optim import _muon  # noqa: E402

import hugging_face  # noqa: E402

STEPS, RATE, DECAY, CLIP = 3, 1e-2, 0.1, 0.5
SIZES = dict(layers=4, hidden=32, heads=4, feed_forward=48, vocabulary=257, positions=40, tied=False)
LLAMA = {"class": "Llama", "key_value_heads": 2, "head_size": 8, "norm_epsilon": 1e-5, "attention_bias": "none"}
FAMILIES = {"gpt2": {}, "llama": LLAMA, "bert": {"vocabulary": 260}}
LAYOUTS = {"gpt2": ["chimera-zb", 4], "llama": ["chimera", 2], "bert": ["zb-h1", 2]}
BLOCKS = ("transformer.h.", "model.layers.", "bert.encoder.layer.")


def iterations_in_float64():
    """Returns torch's own iterations, in float64 instead of bfloat16."""
    text = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert text.count("bfloat16") == 1
    names = dict(vars(_muon))
    exec(text.replace("bfloat16", "double"), names)
    return names["_zeropower_via_newtonschulz"]


def matrices(name, tensor):
    """Returns the matrices of a parameter, out x in; nothing if AdamW updates it."""
    if tensor.dim() != 2 or not name.startswith(BLOCKS):
        return []
    if name.startswith("transformer."):  # Conv1D stores in x out
        return list(tensor.t().chunk(3 if "c_attn" in name else 1))
    return [tensor]


class Plain:
    """The model of transformers with torch's optimizers."""

    def __init__(self, model):
        self.model, self.pieces = model, {}
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        for name, parameter in named:
            if found := matrices(name, parameter):
                self.pieces[name] = [torch.nn.Parameter(matrix.detach().clone()) for matrix in found]
        others = [p for name, p in named if name not in self.pieces]
        groups = [{"params": [p for p in others if p.dim() >= 2], "weight_decay": DECAY},
                  {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizers = [
            torch.optim.Muon([piece for pieces in self.pieces.values() for piece in pieces], lr=RATE, weight_decay=DECAY,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(groups, lr=RATE)]

    def step(self, batch):
        batch = {"attention_mask": torch.ones_like(batch["tokens"]), **batch}
        loss = hugging_face.run(self.model, batch)["loss"].item()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
        for gradient in gradients:
            gradient *= min(1.0, CLIP / norm)
        parameters = dict(self.model.named_parameters())
        for name, pieces in self.pieces.items():
            for piece, gradient in zip(pieces, matrices(name, parameters[name].grad)):
                piece.grad = gradient.clone()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            for name, pieces in self.pieces.items():
                for piece, matrix in zip(pieces, matrices(name, parameters[name])):
                    matrix.copy_(piece)
        return loss


class MuonOracle(oracles.OracleTest):
    def setUp(self):
        super().setUp()
        words = random.Random(7)
        self.text = self.folder / "text.txt"
        self.text.write_text("".join(words.choices("abcdefgh .", k=20000)))

    def train(self, family, steps, *more):
        """Returns the whole model before training, its batches, and losses and weights of Chimera."""
        case = {"family": family, **SIZES, **FAMILIES[family]}
        torch.manual_seed(1)
        model = hugging_face.build(case, torch.float64)
        folder = self.folder / family
        model.float().save_pretrained(folder)
        hugging_face.make_exact(model, case)
        schedule, stages = LAYOUTS[family]
        words = ["--from", folder, "--data", self.text, "--tokenizer", "bytes", "--schedule", schedule, "--stages",
                 stages, "--micro-batches", 4, "--micro-batch-size", 2, "--sequence", 16, "--steps", steps, "--dtype",
                 "float64", "--optimizer", "muon", "--learning-rate", RATE, "--learning-rate-shape", "constant",
                 "--warmup", 0, "--weight-decay", DECAY, "--clip", CLIP, *more]
        self.chimera("bench", *words, "--export", self.folder / f"{family}-batches")
        batches = load_file(self.folder / f"{family}-batches" / "batches.safetensors")
        out, metrics = self.folder / f"{family}-out", self.folder / f"{family}.jsonl"
        self.chimera("train", *words, "--transport", "threads", "--metrics", metrics, "--export", out)
        losses = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
        weights = {name: value for file in out.glob("*.safetensors") for name, value in load_file(file).items()}
        return model, [{k: v[i] for k, v in batches.items()} for i in range(steps)], losses, weights

    def test_losses_and_weights_are_those_of_torch(self):
        for family in FAMILIES:
            with self.subTest(family):
                model, batches, losses, weights = self.train(family, STEPS)
                with unittest.mock.patch.object(_muon, "_zeropower_via_newtonschulz", iterations_in_float64()):
                    plain = Plain(model)
                    for batch, loss in zip(batches, losses):
                        self.assertAlmostEqual(plain.step(batch), loss, delta=1e-12 * loss)
                named = {name: p for name, p in model.named_parameters() if p.requires_grad}
                for name, parameter in named.items():
                    # A bias of keys changes no softmax: its gradient is rounding, which AdamW amplifies.
                    most = 1e-10 if name.endswith(("c_attn.bias", "key.bias", "k_proj.bias")) else 1e-12
                    self.assertLessEqual((weights[name] - parameter).abs().max().item(), most, name)

    def test_iterations_in_bfloat16_are_those_of_torch_within_their_rounding(self):
        model, batches, _, weights = self.train("gpt2", 1, "--muon-dtype", "bfloat16")
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        plain = Plain(model)
        plain.step(batches[0])
        for name in plain.pieces:
            expected = dict(model.named_parameters())[name]
            moved = (expected - before[name]).norm().item()
            self.assertLess((weights[name] - expected).norm().item(), 2**-6 * moved, name)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
