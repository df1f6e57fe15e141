"""Compares logits, loss and gradients of Chimera's stages with Hugging Face models, in float64 and float32.

Usage: hugging_face_test.py RUN_CASES [COUNT]

The models are small and random, with odd sizes, of all families. RUN_CASES is the program of tests/model/run_cases.cc.
COUNT: number of random models per class (default 4).
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import oracles

torch, _, tensor_files = oracles.require("torch", "transformers", "safetensors.torch")
import hugging_face  # noqa: E402

# Both add in different orders.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
# Errors of a gradient are relative to its norm, but at least to this share of the norm of all gradients. The gradient
# of BERT's key bias is mathematically zero; rounding in float32 leaves 1e-8 of the norm of all.
SHARES = {torch.float64: 1e-6, torch.float32: 0.1}


def random_sizes(rng):
    return dict(layers=rng.randint(1, 3), vocabulary=rng.choice([5, 31, 64, 97, 131]), positions=40,
                tied=rng.random() < 0.5, feed_forward=rng.randint(3, 90),
                norm_epsilon=rng.choice([1e-12, 1e-6, 1e-5, 1e-3]))


def gpt2_or_bert(rng, family):
    heads = rng.choice([1, 2, 3, 5])
    return dict(family=family, hidden=heads * rng.choice([3, 4, 11, 16]), heads=heads, **random_sizes(rng))


def random_scaling(rng):
    kind = rng.choice(["none", "linear", "llama3", "llama3"])
    if kind == "none":
        return {}
    if kind == "linear":
        return dict(rope_scaling=dict(type=kind, factor=rng.choice([1.5, 4.0])))
    low = rng.choice([0.1, 0.5, 1.0])
    return dict(rope_scaling=dict(type=kind, factor=rng.choice([2.0, 32.0]), low_frequency_factor=low,
                                  high_frequency_factor=4 * low, original_positions=rng.choice([4, 16, 32])))


def llama(rng, kind):
    key_value_heads = rng.choice([1, 2, 3])
    heads = key_value_heads * rng.choice([1, 2, 3, 4])
    case = dict(family="llama", hidden=heads * rng.randint(2, 48 // heads), heads=heads, key_value_heads=key_value_heads,
                head_size=rng.choice([2, 6, 16, 20]), rope_theta=rng.choice([50.0, 1e4, 5e5]), attention_bias="none",
                **random_sizes(rng), **random_scaling(rng))
    if kind in ("Llama", "Qwen3") and rng.random() < 0.5:
        case["attention_bias"] = "all"
    if kind == "Qwen2":
        case["attention_bias"] = "qkv"
    if kind == "Llama" and rng.random() < 0.5:
        case["feed_forward_bias"] = True
    if kind == "Mistral":
        case["sliding_window"] = 32
    if kind == "Qwen3":
        case["query_key_norm"] = True
    return case | {"class": kind}


def random_cases(count):
    rng = random.Random(13)
    for _ in range(count):
        for family in ("gpt2", "bert"):
            yield gpt2_or_bert(rng, family)
        for kind in hugging_face.LLAMAS:
            yield llama(rng, kind)


def words_of(case):
    return ", ".join(f"{key} {value}" for key, value in case.items())


def largest_error(ours, expected, share):
    """Error relative to the largest logit. For a gradient, relative to its norm or the share of the norm of all
    gradients."""
    norm_of_all = sum(float(tensor.double().square().sum()) for name, tensor in expected.items()
                      if name.startswith("gradients/")) ** 0.5
    worst = (0.0, "nothing")
    for name, tensor in expected.items():
        if name not in ours:
            return (float("inf"), f"{name}, which is missing")
        difference = ours[name].double() - tensor.double()
        if name.startswith("gradients/"):
            error = float(difference.norm()) / max(float(tensor.double().norm()), share * norm_of_all)
        else:
            error = float(difference.abs().max()) / float(tensor.double().abs().max())
        worst = max(worst, (error, name))
    return worst


def main():
    run_cases = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    torch.set_num_threads(1)
    torch.manual_seed(7)
    runs = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for index, case in enumerate(random_cases(count)):
            length = random.Random(index).randint(5, 32)
            for dtype in TOLERANCES:
                model = hugging_face.build(case, dtype)
                inputs = hugging_face.inputs_of(case, sequences=2, length=length)
                paths = [folder / f"{len(runs)}.{end}.safetensors" for end in ("in", "out")]
                hugging_face.save(paths[0], case, dtype, inputs, hugging_face.weights_of(model))
                runs.append((case, dtype, hugging_face.run(model, inputs), paths))
        subprocess.run([run_cases] + [str(path) for run in runs for path in run[3]], check=True)
        failures = 0
        worst = {dtype: 0.0 for dtype in TOLERANCES}
        for case, dtype, expected, paths in runs:
            error, what = largest_error(tensor_files.load_file(paths[1]), expected, SHARES[dtype])
            worst[dtype] = max(worst[dtype], error)
            if not error <= TOLERANCES[dtype]:
                failures += 1
                print(f"{error:.1e} of {what} in {dtype}: {words_of(case)}")
    for dtype, error in worst.items():
        print(f"{len(runs) // len(worst)} models in {dtype}: at most {error:.1e}, allowed {TOLERANCES[dtype]:.0e}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
