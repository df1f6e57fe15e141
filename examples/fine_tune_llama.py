"""Fine-tunes a Llama of Hugging Face on the ranks of a pipeline and saves it.

    PYTHONPATH=build/python torchrun --nproc-per-node 4 examples/fine_tune_llama.py FOLDER_OF_MODEL OUTPUT

Without a folder a small model of random values is used.
"""

import sys

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

import chimerapipe as cp

STEPS, SAMPLES, LENGTH = 20, 16, 32


def load(folder):
    if folder:
        return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 6}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=2, **sizes))


def loss(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def main(output, folder=None):
    llama = load(folder)
    schedule = cp.schedule("chimera", stages=4, micro_batches=4)
    model = cp.Pipeline(cp.layers_of(llama), loss, schedule, micro_batch_size=SAMPLES // 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = torch.arange(SAMPLES * (LENGTH + 1)).view(SAMPLES, -1) * 7 % 31
    for i in range(STEPS):
        step = model.step(text[:, :-1], text[:, 1:], optimizer=optimizer, clip=1.0)
        if model.rank == 0 and i % 5 == 4:
            print(f"step {i + 1}: loss {step.loss:.3f}", flush=True)
    model.gather()
    if model.rank == 0:
        llama.save_pretrained(output)
        print(f"saved in {output}")


if __name__ == "__main__":
    main(*reversed(sys.argv[1:]))
