"""Folders of `transformers` go in, folders for `transformers` come out: the same tensors, logits and losses.

Usage: transformers_oracle_test.py CHIMERA [CLASS.TEST...]
"""

import json
import pathlib
import random
import subprocess
import sys
import unittest

import oracles

torch, transformers = oracles.require("torch", "transformers")
oracles.require("safetensors")
from safetensors.torch import load_file  # noqa: E402
import hugging_face  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
# No two sizes alike, vocabularies of bytes (BERT: and its four marks).
GPT2 = dict(vocab_size=259, n_positions=40, n_embd=48, n_layer=4, n_head=4, n_inner=80, bos_token_id=None,
            eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
BERT = dict(vocab_size=261, max_position_embeddings=40, hidden_size=48, num_hidden_layers=4, num_attention_heads=4,
            intermediate_size=80, pad_token_id=None, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LLAMA = dict(vocab_size=259, max_position_embeddings=64, hidden_size=48, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=80, head_dim=20, bos_token_id=None, eos_token_id=None,
             pad_token_id=None)
MODELS = {
    "gpt2-tied": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2)),
    "gpt2-untied": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2, tie_word_embeddings=False)),
    "bert-tied": (transformers.BertForPreTraining, transformers.BertConfig(**BERT)),
    "bert-untied": (transformers.BertForPreTraining, transformers.BertConfig(**BERT, tie_word_embeddings=False)),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA, rope_parameters=LLAMA3)),
    "llama-biases": (transformers.LlamaForCausalLM,
                     transformers.LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig(**LLAMA, sliding_window=64)),
    "qwen2": (transformers.Qwen2ForCausalLM,
              transformers.Qwen2Config(**{k: v for k, v in LLAMA.items() if k != "head_dim"})),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**LLAMA, tie_word_embeddings=True)),
}


def random_model(name, dtype=torch.float32):
    """Large random values everywhere, so that a tensor in the wrong place shows."""
    torch.manual_seed(sorted(MODELS).index(name))
    build, config = MODELS[name]
    config._attn_implementation = "eager"
    model = build(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            is_scale = parameter.dim() == 1 and parameter_name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.3)
        if name == "bert-untied":  # of the two, forward uses the decoder's alone
            model.cls.predictions.bias.copy_(model.cls.predictions.decoder.bias)
    return model.to(dtype)


def tensors_of(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


def logits_of(model):
    tokens = torch.arange(60).reshape(2, 30) * 7 % 250
    output = model(input_ids=tokens)
    return output.prediction_logits if hasattr(output, "prediction_logits") else output.logits


class TransformersOracleTest(oracles.OracleTest):
    def save(self, model, name="in", **flags):
        path = self.folder / name
        model.save_pretrained(path, **flags)
        return path

    def assert_same_bytes(self, ours, theirs):
        self.assertEqual(sorted(ours), sorted(theirs))
        for name, tensor in theirs.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(ours[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)),
                            name)

    def assert_loads(self, model, folder, source):
        """Both are read: a model that was converted in memory to a narrow type has rounded its rotary frequencies too."""
        logits = []
        for each in (folder, source):
            loaded, report = type(model).from_pretrained(each, output_loading_info=True)
            for kind, names in report.items():
                self.assertFalse(names, f"{kind}: {names}")
            loaded.config._attn_implementation = "eager"
            logits.append(logits_of(loaded.eval()))
        self.assertTrue(torch.equal(*logits))

    def test_knows_every_class(self):
        for name in MODELS:
            with self.subTest(name):
                model = random_model(name)
                report = json.loads(self.chimera("model", self.save(model, name), "--format", "json"))
                # BERT's two biases over the vocabulary are one here.
                twice = model.cls.predictions.bias.numel() if name == "bert-untied" else 0
                self.assertEqual(report["parameters"], sum(p.numel() for p in model.parameters()) - twice)

    def test_in_and_out_keeps_every_byte(self):
        for name in MODELS:
            for dtype, size in ((torch.float32, "5GB"), (torch.bfloat16, "20KB"), (torch.float16, "60KB")):
                with self.subTest(name, dtype=dtype):
                    model = random_model(name, dtype)
                    source = self.save(model, f"{name}-{dtype}", max_shard_size=size)
                    output = self.folder / f"{name}-{dtype}-out"
                    self.chimera("export", source, "--output", output, "--shard-size", "30KB")
                    self.assertTrue((output / "model.safetensors.index.json").exists())
                    self.assert_same_bytes(tensors_of(output), tensors_of(source))
                    self.assert_loads(model, output, source)

    def test_export_rounds_as_torch_does(self):
        model = random_model("llama")
        output = self.folder / "out"
        self.chimera("export", self.save(model), "--output", output, "--dtype", "bfloat16")
        self.assert_same_bytes(tensors_of(output),
                               {name: tensor.to(torch.bfloat16) for name, tensor in tensors_of(self.folder / "in").items()})
        self.assertEqual(json.loads((output / "config.json").read_text())["dtype"], "bfloat16")

    def text(self):
        generator = random.Random(7)
        path = self.folder / "text.txt"
        words = ["the", "king", "went", "to", "his", "house", "and", "spoke"]
        path.write_text("\n".join(" ".join(generator.choices(words, k=9)) + "." for _ in range(600)))
        return path

    def train_words(self, name, source):
        schedule = ("--schedule", "chimera", "--stages", 4) if name in ("gpt2-untied", "bert-untied", "llama") else ("--schedule", "1f1b", "--stages", 2)
        return ("--from", source, "--data", self.text(), "--tokenizer", "bytes", *schedule, "--micro-batches", 4,
                "--micro-batch-size", 2, "--sequence", 32, "--steps", 1)

    def test_training_begins_with_the_folders_weights_and_leaves_them(self):
        """A learning rate that changes no bit: what goes in comes out, through stages on several ranks."""
        for name in MODELS:
            for dtype, word in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
                with self.subTest(name, dtype=dtype):
                    model = random_model(name, dtype)
                    source = self.save(model, f"{name}-{word}", max_shard_size="50KB")
                    output = self.folder / f"{name}-{word}-out"
                    self.chimera("train", *self.train_words(name, source), "--optimizer", "sgd", "--learning-rate",
                                     1e-60, "--weight-decay", 0, "--export", output, "--export-dtype", word,
                                     "--export-shard-size", "40KB")
                    self.assert_same_bytes(tensors_of(output), tensors_of(source))
                    self.assert_loads(model, output, source)

    def test_the_first_loss_is_that_of_transformers(self):
        for name in MODELS:
            with self.subTest(name):
                model = random_model(name)
                words = self.train_words(name, self.save(model, name))
                metrics, batches = self.folder / f"{name}.jsonl", self.folder / f"{name}-batches"
                self.chimera("train", *words, "--metrics", metrics)
                self.chimera("bench", *words, "--export", batches)
                loss = json.loads(metrics.read_text().splitlines()[0])["loss"]
                batch = {key: value[0] for key, value in load_file(batches / "batches.safetensors").items()}
                self.assertAlmostEqual(loss, hugging_face.loss_of(model, batch), delta=1e-5 * loss)

    def test_a_new_model_loads_in_transformers(self):
        for preset in ("gpt2-tiny", "bert-tiny", "llama-tiny"):
            with self.subTest(preset):
                output = self.folder / preset
                self.chimera("train", "--model", preset, "--data", self.text(), "--stages", 2, "--micro-batches", 2,
                                 "--sequence", 32, "--steps", 2, "--export", output)
                config = json.loads((output / "config.json").read_text())
                model = getattr(transformers, config["architectures"][0]).from_pretrained(output)
                report = json.loads(self.chimera("model", output, "--format", "json"))
                # BERT's two biases over the vocabulary are one here.
                twice = model.cls.predictions.bias.numel() if preset == "bert-tiny" else 0
                self.assertEqual(report["parameters"], sum(p.numel() for p in model.parameters()) - twice)

    def test_a_different_head_of_a_tied_model_is_refused(self):
        model = random_model("gpt2-untied")
        model.config.tie_word_embeddings = True
        source = self.save(model)
        (source / "config.json").write_text(
            json.dumps(json.loads((source / "config.json").read_text()) | {"tie_word_embeddings": True}))
        result = subprocess.run([sys.argv[1], "model", source], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("'lm_head.weight' is not 'transformer.wte.weight'", result.stderr)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
