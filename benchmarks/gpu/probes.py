#!/usr/bin/env python3
"""Measures one fact about a GPU for tools/gpu, and prints it as text and a last JSON line.

    probes.py idle                               memory of an idle process, with eager and lazy loading of kernels
    probes.py products [--layers N]              blocks beside thread blocks that wait, as receives of NCCL do
    probes.py compiled                           torch.compile of blocks against eager blocks
    probes.py python                             the package over NCCL, two processes on one GPU
    probes.py memory -- COMMAND...               a training run with less free memory than it needs
    probes.py killed -- COMMAND...               a training run of which one rank is killed
    probes.py stopped -- COMMAND...              a training run of which one rank is stopped

COMMAND is a training run with rank processes; the probe adds --metrics. Exits with 1 if a run did not end as it should.
--device cpu tries the probes without a GPU.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MEBIBYTE = 2**20
WAITING = """
extern "C" __global__ void waits(int milliseconds) {
  extern __shared__ char memory[];
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < 1000000ull * milliseconds);
  if (milliseconds < 0) memory[threadIdx.x] = 1;
}
"""
THREADS_OF_NCCL = 544  # Of a thread block of its transfers
SHARED_OF_NCCL = 80 * 1024  # Bytes, about


def idle(options):
    """Memory of a process that has multiplied two matrices, and clocks and power beside it."""
    code = """
import torch
free, total = torch.cuda.mem_get_info()
a = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
a @ a
torch.cuda.synchronize()
print((total - torch.cuda.mem_get_info()[0]) >> 20)
"""
    if options.device == "cpu":
        code = "print(0)"
    else:
        query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu,memory.used"
        print(subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True, text=True,
                             check=False).stdout)
    found = {}
    for loading in ("EAGER", "LAZY"):
        start = time.monotonic()
        ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, "CUDA_MODULE_LOADING": loading},
                               capture_output=True, text=True, check=True)
        found[loading.lower()] = int(ended.stdout.split()[-1])
        print(f"{loading.lower()}: {found[loading.lower()]} MiB, {time.monotonic() - start:.1f} s to start and end")
    return {"mebibytes_eager": found["eager"], "mebibytes_lazy": found["lazy"]}


def make_block(torch, width, heads, bias):
    """Returns a block of GPT-2 with or without biases."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
            self.up, self.down = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)

        def forward(self, x):
            query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                                 for part in self.qkv(self.norm_1(x)).chunk(3, -1))
            heads_of = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.projection(heads_of.transpose(1, 2).flatten(2))
            return x + self.down(nn.functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    return Block()


def make_step(torch, options, bias=True, wrap=lambda block: block):
    """Returns a forward and backward of the blocks of a micro-batch."""
    device, dtype = options.device, torch.bfloat16
    blocks = torch.nn.Sequential(*[wrap(make_block(torch, options.hidden, options.hidden // 64, bias))
                                   for _ in range(options.layers)]).to(device, dtype)
    shape = (options.micro_batch_size, options.sequence, options.hidden)
    hidden = torch.randn(shape, device=device, dtype=dtype)
    gradient = torch.randn_like(hidden)

    def step():
        blocks(hidden.detach().requires_grad_()).backward(gradient)

    return step


def milliseconds(torch, step, device, times):
    """Returns the device's time of a step."""
    if device == "cpu":
        start = time.monotonic()
        for _ in range(times):
            step()
        return 1e3 * (time.monotonic() - start) / times
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(times):
        step()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / times


def products(options):
    """Times blocks beside 0 to 8 waiting thread blocks, with and without a carveout, for both libraries of products.

    Expected: with a carveout and cuBLASLt, the time grows by the share of multiprocessors that wait."""
    import torch

    if options.device == "cpu":
        return {"slowdown": {}}
    options.micro_batch_size *= 4  # So that the device takes longer than the host
    options.layers = (options.layers + 1) // 2
    kernel = torch.cuda._compile_kernel(WAITING, "waits")
    kernel.set_shared_memory_config(SHARED_OF_NCCL)
    side = torch.cuda.Stream()
    found = {}
    print(f"{'bias':<6}{'library':<10}{'carveout':<10}" + "".join(f"{n} waiting".rjust(12) for n in (0, 2, 4, 8)))
    for bias in (True, False):
        step = make_step(torch, options, bias)
        for library in ("cublas", "cublaslt"):
            torch.backends.cuda.preferred_blas_library(library)
            for carveout in (False, True):
                row = []
                for waiting in (0, 2, 4, 8):
                    torch._C._set_sm_carveout_experimental(waiting if carveout and waiting else None)
                    for _ in range(2):
                        step()
                    torch.cuda.synchronize()
                    seen = []
                    for _ in range(3):
                        if waiting:
                            kernel((waiting, 1, 1), (THREADS_OF_NCCL, 1, 1), [250], SHARED_OF_NCCL, side)
                        seen.append(milliseconds(torch, step, options.device, 4))
                        torch.cuda.synchronize()
                    row.append(statistics.median(seen))
                torch._C._set_sm_carveout_experimental(None)
                name = f"{'bias' if bias else 'none'}-{library}-{'carveout' if carveout else 'whole'}"
                found[name] = [round(value / row[0], 3) for value in row]
                print(f"{'yes' if bias else 'no':<6}{library:<10}{'yes' if carveout else 'no':<10}"
                      + "".join(f"{value:9.2f} ms" for value in row))
    return {"slowdown": found}


def compiled(options):
    """Times eager blocks and blocks of torch.compile, in turn."""
    import torch

    steps = {"eager": make_step(torch, options), "compiled": make_step(torch, options, wrap=torch.compile)}
    start = time.monotonic()
    for step in steps.values():
        step()
    if options.device != "cpu":
        torch.cuda.synchronize()
    print(f"{time.monotonic() - start:.1f} s for the first steps")
    seen = {name: [] for name in steps}
    for _ in range(7):
        for name, step in steps.items():
            seen[name].append(milliseconds(torch, step, options.device, 3))
    medians = {name: statistics.median(times) for name, times in seen.items()}
    for name, value in medians.items():
        print(f"{name}: {value:.2f} ms a micro-batch")
    return {"speedup": medians["eager"] / medians["compiled"], **medians}


RANK = """
import json, os, sys, torch
import chimerapipe as cp
torch.manual_seed(1)
device = sys.argv[1]
inputs, targets = torch.randn(8, 64), torch.randn(8, 64)
losses = {}
for name in ("1f1b", "zb-h1", "chimera"):
    torch.manual_seed(2)
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(4)]
    model = cp.Pipeline(layers, lambda a, b: ((a - b) ** 2).sum(), cp.schedule(name, 2, 4),
                        micro_batch_size=2, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses[name] = [model.step(inputs.to(model.device), targets.to(model.device), optimizer=optimizer).loss
                    for _ in range(4)]
print(json.dumps(losses), flush=True)
"""


def python(options):
    """Trains three schedules with two processes on one GPU and with threads on the CPU, and compares losses."""
    device = "cpu" if options.device == "cpu" else "cuda:0"
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "rank.py"
        script.write_text(RANK)
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        alone = {name: value for name, value in os.environ.items() if name not in names}
        expected = subprocess.run([sys.executable, script, "cpu"], env=alone, capture_output=True, text=True, check=False)
        ranks = [subprocess.Popen(
            [sys.executable, script, device], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**alone, "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577", "NCCL_HOSTID": f"rank {rank}"})
            for rank in range(2)]
        texts = []
        for rank in ranks:
            try:
                texts.append(rank.communicate(timeout=50)[0])
            except subprocess.TimeoutExpired:
                rank.kill()
                texts.append(f"{rank.communicate()[0]}\nnot done within 50 s")
    print("threads:", expected.stdout.strip() or expected.stderr, *[f"rank {i}: {t}" for i, t in enumerate(texts)],
          sep="\n")
    losses = [json.loads(text.strip().splitlines()[-1]) for text in (expected.stdout, *texts)]
    worst = max(abs(a - b) / abs(a) for other in losses[1:] for name in losses[0]
                for a, b in zip(losses[0][name], other[name]))
    return {"largest_difference": worst}


def metrics_of(path):
    """Returns the steps so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith('{"step"')
            and line.endswith("}")]


def memory(options):
    """Runs the command, then again beside a process that leaves it too little memory, in two sizes.

    Expected: one line, no hang."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "steps.jsonl"
        subprocess.run([*options.command, "--metrics", path], check=True, timeout=60)
        if options.device == "cpu":
            return {"seconds": {}}
        import torch

        used = max(step["used_memory_bytes"] for step in metrics_of(path))
        free, total = torch.cuda.mem_get_info()
        idle_bytes = total - free
        print(f"the run needs {used / MEBIBYTE:.0f} of {total / MEBIBYTE:.0f} MiB")
        for share in (0.95, 0.7):
            leave = int((used - idle_bytes) * share)
            taken = torch.empty(max(0, torch.cuda.mem_get_info()[0] - leave), dtype=torch.uint8, device="cuda")
            start = time.monotonic()
            run = subprocess.Popen([*options.command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)
            try:
                text, ended = run.communicate(timeout=40)[0], run.returncode
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                text, ended = run.communicate()[0], None
            seconds = time.monotonic() - start
            print(f"-- with {share:.0%} of it: exit code {ended} after {seconds:.1f} s\n{text[-3000:]}")
            results[str(share)] = {"exit": ended, "seconds": round(seconds, 1)}
            del taken
            torch.cuda.empty_cache()
    return {"ended": results}


def ranks_below(launcher):
    """Returns the process numbers of a launcher's children in the order of their start."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # It has ended
        if int(fields[1]) == launcher:
            found.append(int(status.parent.name))
    return sorted(found)


def with_signal(options, signal_number):
    """Sends a signal to the last rank after three steps. Returns seconds until the job's end, and whether the job names
    the rank."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "steps.jsonl"
        with open(pathlib.Path(folder) / "log", "w+") as log:
            run = subprocess.Popen([*options.command, "--metrics", path], stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True)
            deadline = time.monotonic() + 40
            while len(metrics_of(path)) < 3 and run.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            ranks = ranks_below(run.pid)
            print("processes below the launcher:", ranks)
            start = time.monotonic()
            if ranks:
                os.kill(ranks[-1], signal_number)
            try:
                run.wait(timeout=30)
            except subprocess.TimeoutExpired:
                pass
            seconds = time.monotonic() - start
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            log.seek(0)
            text = log.read()
    print(f"exit code {run.wait()} after {seconds:.1f} s\n{text[-3000:]}")
    return {"seconds": round(seconds, 1), "names_rank": "rank 1" in text}


def queues(options):
    """Spins on 31 streams of high priority beside 62 that wait for the last one, and times a kernel and the last spin.

    Expected: the kernel and the last spin start at once. If streams share hardware queues, they wait for another."""
    import torch

    if options.device == "cpu":
        return {"seconds": 0.0}
    spin = int(1e9)  # Clock cycles: half a second
    last = torch.cuda.Event()
    spinning = [torch.cuda.Stream(priority=-1) for _ in range(31)]
    blocked = [torch.cuda.Stream() for _ in range(62)]
    one = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    start = time.monotonic()
    for stream in spinning:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(spin)
    last.record(spinning[-1])
    for stream in blocked:
        stream.wait_event(last)
        with torch.cuda.stream(stream):
            one.clone()
    one.add_(1)
    torch.cuda.current_stream().synchronize()
    kernel = time.monotonic() - start
    last.synchronize()
    return {"seconds": time.monotonic() - start, "kernel_seconds": kernel}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    probes = {"idle": idle, "products": products, "compiled": compiled, "python": python, "memory": memory,
              "queues": queues,
              "killed": lambda options: with_signal(options, signal.SIGKILL),
              "stopped": lambda options: with_signal(options, signal.SIGSTOP)}
    parser.add_argument("probe", choices=probes)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    for name, value in {"layers": 8, "hidden": 1280, "sequence": 1024, "micro-batch-size": 4}.items():
        parser.add_argument("--" + name, type=int, default=value)
    arguments = sys.argv[1:]
    command = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    options = parser.parse_args(arguments[:arguments.index("--")] if command else arguments)
    options.command = command
    print(json.dumps({"probe": options.probe, **probes[options.probe](options)}))


if __name__ == "__main__":
    main()
