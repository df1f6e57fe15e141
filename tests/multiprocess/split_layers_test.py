"""A plan with ranks that share layers, from plan to transformers: trained, killed, resumed without them, exported.

Usage: split_layers_test.py CHIMERA RUN_CASES [CLASS.TEST...]

RUN_CASES is the program of tests/model/run_cases.cc.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import oracles

torch, transformers = oracles.require("torch", "transformers")
tensor_files = oracles.require("safetensors.torch")
import hugging_face  # noqa: E402

CHIMERA, RUN_CASES = (str(pathlib.Path(program).resolve()) for program in sys.argv[1:3])
SEQUENCE = 32
LOSSES = 1e-11  # relative, in float64: sums in another order
LOGITS = 1e-5   # in float32
LAYOUT = {"schedule": '"1f1b"', "micro-batches": 4, "micro-batch-size": 4, "data-parallel": 1, "partition": '"even"',
          "dtype": '"float64"'}


class SplitLayersOracle(oracles.OracleTest):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text("the king went to his house and spoke unto all the people.\n" * 200)
        machine = json.loads((pathlib.Path(__file__).parents[2] / "machines/p100-aries.json").read_text())
        (self.folder / "here.json").write_text(json.dumps(machine | {"cores": 8, "workers_per_node": 4}))

    def chimera(self, *words):
        return super().chimera(*words, cwd=self.folder)

    def edit(self, plan, **values):
        """Replaces values of a plan, and adds those that it lacks."""
        lines = [line for line in plan.splitlines() if not line.startswith(("predicted", "machine"))]
        for key, value in (LAYOUT | {key.replace("_", "-"): value for key, value in values.items()}).items():
            lines = [line for line in lines if not line.startswith(f"{key} =")] + [f"{key} = {value}"]
        (self.folder / "plan.toml").write_text("\n".join(lines) + "\n")

    def training(self, name, *more, steps=6):
        return ("train", "--config", "plan.toml", "--data", "text.txt", "--steps", steps, "--metrics", "metrics.jsonl",
                "--checkpoint", name, "--save-every", 2, "--learning-rate-shape", "constant", "--warmup", 0, "--seed", 1,
                "--threads", 1, *more)

    def losses(self):
        return [json.loads(line)["loss"] for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def load(self, name):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder / name, dtype=torch.float32).eval()

    def logits_of_chimera(self, model, inputs):
        """Returns the logits of Chimera's stages with the weights of a Llama."""
        config = model.config
        case = dict(family="llama", layers=config.num_hidden_layers, hidden=config.hidden_size,
                    heads=config.num_attention_heads, key_value_heads=config.num_key_value_heads, head_size=config.head_dim,
                    feed_forward=config.intermediate_size, vocabulary=config.vocab_size,
                    positions=config.max_position_embeddings, norm_epsilon=config.rms_norm_eps, attention_bias="none",
                    tied=config.tie_word_embeddings)
        paths = [self.folder / f"{end}.safetensors" for end in ("in", "out")]
        hugging_face.save(paths[0], case, torch.float32, inputs, hugging_face.weights_of(model))
        subprocess.run([RUN_CASES, *map(str, paths)], check=True)
        return tensor_files.load_file(paths[1])["logits"]

    def test_a_plan_with_t_2_is_killed_and_resumed_with_t_1_and_d_4(self):
        self.chimera("plan", "--model", "llama-mini", "--workers", 4, "--mini-batch", 16, "--sequence", SEQUENCE,
                     "--tensor-parallel", "auto", "--machine", "here.json", "--output", "plan.toml")
        plan = (self.folder / "plan.toml").read_text()
        self.edit(plan, tensor_parallel=1, stages=4)
        self.chimera(*self.training("whole", "--export", "expected"))
        expected = self.losses()
        (self.folder / "metrics.jsonl").unlink()

        self.edit(plan, tensor_parallel=2, stages=2)
        self.chimera(*self.training("run", steps=2))  # A complete checkpoint, however slow the disk is
        words = [CHIMERA, *map(str, self.training("run", "--resume", "auto"))]
        killed = subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.folder,
                                env=os.environ | {"CHIMERA_FAULT": "kill@step:3:3"})
        self.assertNotEqual(killed.returncode, 0)
        self.assertIn("rank 3 was killed by signal 9", killed.stderr)
        self.edit(plan, tensor_parallel=1, stages=4)
        self.chimera(*self.training("run", "--resume", "auto", "--export", "exported"))

        losses = self.losses()
        self.assertEqual(len(losses), 6)
        for loss, other in zip(losses, expected):
            self.assertAlmostEqual(loss, other, delta=LOSSES * other)
        text = (self.folder / "text.txt").read_bytes()[:SEQUENCE + 1]
        (self.folder / "window.txt").write_bytes(text)
        evaluated = json.loads(self.chimera("evaluate", "--from", "exported", "--data", "window.txt", "--sequence", SEQUENCE,
                                            "--format", "json"))
        tokens = torch.tensor([list(text)])
        inputs = dict(tokens=tokens[:, :-1], targets=tokens[:, 1:].clone())
        model = self.load("exported")
        self.assertAlmostEqual(hugging_face.loss_of(model, inputs), evaluated["loss"], delta=LOGITS)
        logits = model(input_ids=inputs["tokens"]).logits
        for expected in (self.logits_of_chimera(model, inputs), self.load("expected")(input_ids=inputs["tokens"]).logits):
            self.assertLess((logits - expected).abs().max().item(), LOGITS)


unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
