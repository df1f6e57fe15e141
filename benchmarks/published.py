#!/usr/bin/env python3
"""Compares predictions of the shipped V100, A100 and H100 profiles with published training throughputs.

    benchmarks/published.py [--only TEXT] [--summary] [--program build/chimera]

Each row of benchmarks/published.toml is one configuration, predicted by `chimera plan` with unlimited memory. Prints
tokens per second and GPU, and predicted over published ones, minus 1. `median` is the median of these errors, `median
size` of their absolute values.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEFAULTS = {"stages": 1, "tensor_parallel": 1, "partition": "even", "dtype": "bfloat16", "shard_optimizer": False,
            "network": "as in the profile", "kernels": "eager"}


def write_model(folder, name, sizes, sequence):
    path = folder / f"{name}-{sequence}.toml"
    model = {"family": "gpt2", "feed_forward": 4 * sizes["hidden"]} | sizes | {"positions": sequence}
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in model.items()))
    return path


def machine_of(row, folder):
    """Returns the shipped profile, or a copy with links that take no time."""
    shipped = ROOT / f"machines/{row['machine']}.json"
    if row["network"] != "hidden":
        return shipped
    profile = json.loads(shipped.read_text())
    no_time = {link: {"alpha": 0, "beta": 0} for link in ("within_node", "between_nodes")}
    path = folder / f"{row['machine']}.json"
    path.write_text(json.dumps(profile | {"point_to_point": no_time, "all_reduce": no_time}))
    return path


def blocks_of_stages(layers, stages, rule):
    """Returns the partition; `ends`: the first and the last stage have a block less."""
    if rule != "ends":
        return rule
    blocks = (layers + 2) // stages
    return ",".join(str(blocks - (stage in (0, stages - 1))) for stage in range(stages))


def run(*words):
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {ended.stderr.strip()}")
    return json.loads(ended.stdout)


def flops_per_token(row, report):
    """`report` is that of `chimera model`."""
    layers, hidden, sequence = report["layers"], report["hidden"], row["sequence"]
    if row["unit"] == "palm":
        return 6 * report["parameters"] + 12 * layers * hidden * sequence
    return 96 * layers * hidden**2 * (1 + sequence / (6 * hidden) + report["vocabulary"] / (16 * layers * hidden))


def published_tokens(row, report):
    """Returns tokens per second and GPU."""
    if row["unit"] in ("megatron", "palm"):
        return 1e12 * row["published"] / flops_per_token(row, report)
    if row["unit"] == "step seconds":
        copies = row["gpus"] // (row["stages"] * row["tensor_parallel"])
        tokens = copies * row["micro_batches"] * row["micro_batch_size"] * row["sequence"]
        return tokens / row["published"] / row["gpus"]
    each = {"tokens": 1, "sequences": row["sequence"], "all sequences": row["sequence"] / row["gpus"]}
    return row["published"] * each[row["unit"]]


def predict(program, row, model, layers, folder):
    """Returns tokens per second and GPU, and the configuration."""
    copies = row["gpus"] // (row["stages"] * row["tensor_parallel"])
    mini_batch = row.get("mini_batch") or copies * row["micro_batches"] * row["micro_batch_size"]
    words = [program, "plan", "--model", model, "--workers", row["gpus"], "--mini-batch", mini_batch,
             "--sequence", row["sequence"], "--dtype", row["dtype"], "--memory", 1e6,
             "--machine", machine_of(row, folder), "--schedules", row["schedule"],
             "--stages", row["stages"], "--tensor-parallel", row["tensor_parallel"], "--recompute", row["recompute"],
             "--partition", blocks_of_stages(layers, row["stages"], row["partition"]), "--top", 1,
             "--format", "json"]
    if json.loads((ROOT / f"machines/{row['machine']}.json").read_text()).get("device"):
        words += ["--kernels", row["kernels"]]
    if "chunks" in row:
        words += ["--chunks", row["chunks"]]
    if "micro_batch_size" in row:
        words += ["--micro-batch-size", row["micro_batch_size"]]
    if row["shard_optimizer"]:
        words.append("--shard-optimizer")
    chosen = run(*words)["chosen"]
    return chosen["sequences_per_second"] * row["sequence"] / row["gpus"], chosen


def rows_of(table):
    common = {key: value for key, value in table.items() if key not in ("rows", "columns")}
    return [DEFAULTS | common | dict(zip(table["columns"], values)) for values in table["rows"]]


def compare(program, folder, sizes, table, prints):
    errors = []
    for row in rows_of(table):
        name = row["model"]
        model = write_model(folder, name, sizes[name], row["sequence"]) if name in sizes else name
        report = run(program, "model", model, "--format", "json")
        published = published_tokens(row, report)
        predicted, chosen = predict(program, row, model, report["layers"], folder)
        errors.append(predicted / published - 1)
        if prints:
            shape = f"{chosen['data_parallel']} x {row['tensor_parallel']} x {row['stages']}"
            batch = f"{chosen['micro_batches']} x {chosen['micro_batch_size']}"
            print(f"{row['model']:<16} {row['sequence']:>6} {row['schedule']:<16} {shape:<12} {batch:>9} "
                  f"{row['recompute']:<5} {published:>9.4g} {predicted:>9.4g} {100 * errors[-1]:>+7.1f} %")
    return errors


def left_out(errors):
    """Returns errors if each row is left out of a fit of one factor on all times: the median of the others."""
    return [(1 + error) / (1 + statistics.median(errors[:i] + errors[i + 1:])) - 1 for i, error in enumerate(errors)]


def tested_errors(lines):
    """Returns `errors` of profiles by machine and kind of kernels. Rows of fits are left out one by one."""
    by_use = {}
    for table, errors in lines:
        kind = (table["machine"], table.get("kernels", "eager"))
        by_use.setdefault(kind, {"fit": [], "test": []})[table["use"]] += errors
    found = {}
    for kind, uses in sorted(by_use.items()):
        errors = sorted(uses["test"] + (left_out(uses["fit"]) if len(uses["fit"]) > 1 else []))
        tenth = round(0.1 * (len(errors) - 1))
        # A speed's error is that of the time in the opposite direction: published over predicted time, minus 1
        found[kind] = {"median": round(statistics.median(map(abs, errors)), 3), "low": round(max(0, -errors[tenth]), 3),
                       "high": round(max(0, errors[-1 - tenth]), 3), "runs": len(errors)}
    return found


def summary(errors):
    sizes = [abs(error) for error in errors]
    return (f"{100 * statistics.median(errors):+.1f} % | {100 * statistics.median(sizes):.1f} % | "
            f"{100 * max(sizes):.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only tables with this text in their name")
    parser.add_argument("--summary", action="store_true", help="no rows, only medians")
    parser.add_argument("--program", default=ROOT / "build/chimera", metavar="FILE")
    options = parser.parse_args()
    data = tomllib.loads((ROOT / "benchmarks/published.toml").read_text())
    tables = [table for table in data["tables"] if options.only in table["name"]]
    if not tables:
        sys.exit(f"--only {options.only}: no table has this text in its name; there are: "
                 f"{', '.join(table['name'] for table in data['tables'])}")
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for table in tables:
            if not options.summary:
                print(f"{table['name']} ({table['source']})\npredicted for {table['machine']}; differs: "
                      f"{table['differs']}\n\n{'model':<16} {'tokens':>6} {'schedule':<16} {'W x T x D':<12} "
                      f"{'N x b':>9} {'recom':<5} {'published':>9} {'predicted':>9}  error")
            errors = compare(options.program, folder, data["models"], table, not options.summary)
            lines.append((table, errors))
            if not options.summary:
                print(flush=True)
    print("| profile | published | use | rows | median | median size | worst |\n"
          "| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for table, errors in lines:
        name = f"[{table['name']}]({table['source']})" if table["source"].startswith("http") else table["name"]
        print(f"| {table['machine']} | {name} | {table['use']} | {len(errors)} | "
              f"{summary(errors)} |")
    for machine, use in sorted({(table["machine"], table["use"]) for table, _ in lines}):
        errors = [error for table, each in lines if (table["machine"], table["use"]) == (machine, use)
                  for error in each]
        print(f"| {machine} | all | {use} | {len(errors)} | {summary(errors)} |")
    for (machine, kernels), errors in tested_errors(lines).items():
        print(f"{machine}, {kernels} kernels: {json.dumps(errors)}")


if __name__ == "__main__":
    main()
