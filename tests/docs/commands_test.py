"""Runs every command block in the documents, unless a mark above it states why not:

    <!-- not run: builds everything -->

Usage: commands_test.py CHIMERA SOURCES [--list] [--only NAME]. A block is fenced or indented, and contains commands if
one of its lines begins with a program's name. The blocks of a document run in order in one folder. It is empty for the
documents of STARTS_EMPTY, where a newcomer starts; the others find the files of a reader (see `prepare`). srun, mpirun
and torchrun are stand-ins that run `chimera train ... --dry-run`; sbatch checks the syntax of the job. The pictures that
a document draws must equal those in docs/images. README.md and docs/ have at most MOST_MARKS marks. --list prints the
marked blocks, --only runs one document.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAMS = re.compile(r"(sudo |export |[A-Z_]+=\S+ )*((\./|\.venv|build|benchmarks|tools)\S*|chimera|cmake|cpack|apt|pip|"
                      r"python3?|torchrun|srun|sbatch|mpirun|mpiexec|docker|apptainer|git)(?!\S)")
SECONDS = 240  # Limit of a block; generous, because the machine may be busy
MOST_MARKS = 5
MARK = re.compile(r"<!-- not run: (.+) -->")
STARTS_EMPTY = ["README.md", "docs/choosing.md", "docs/comparison.md", "docs/tutorial.md"]
STAND_INS = {
    "srun": 'while [ "$1" != chimera ]; do shift; done; exec "$@" --dry-run',
    "sbatch": 'exec bash -n "$1"',
}
STAND_INS |= {name: STAND_INS["srun"] for name in ["mpirun", "torchrun"]}


def code_blocks(lines):
    """Yields each block of code: index of the line before its text, its lines, and whether it may be a shell's."""
    number = 0
    while number < len(lines):
        start, opened = number, lines[number].lstrip()
        number += 1
        if opened.startswith("```"):
            while not lines[number].lstrip().startswith("```"):
                number += 1
            indent = len(lines[start]) - len(opened)
            yield start, [each[indent:] for each in lines[start + 1:number]], opened in ("```", "```sh", "```console")
            number += 1
        elif not opened:
            while number < len(lines) and lines[number].startswith("    "):
                number += 1
            if number > start + 1:
                yield start, [each[4:] for each in lines[start + 1:number]], True


def blocks(text):
    """Yields each command block: number of its first line, text, and the mark above it or None."""
    lines = text.splitlines()
    for start, body, is_shell in code_blocks(lines):
        if any(each.startswith("$ ") for each in body):  # Commands with their output
            body = [each[2:] for each in body if each.startswith("$ ")]
        if is_shell and any(PROGRAMS.match(each.strip()) for each in body):
            mark = MARK.search(lines[start - 1]) if start else None
            yield start + 2, "\n".join(body), mark and mark[1]


def documents(sources):
    return ["README.md", *(f"docs/{path.name}" for path in sorted((sources / "docs").glob("*.md"))), "CONTRIBUTING.md",
            "recipes/README.md"]


def prepare(folder, name, program, sources, model):
    """Adds the programs to PATH, which is `.programs`; for most documents also a reader's text, model and source tree."""
    programs = folder / ".programs"
    programs.mkdir()
    (programs / "chimera").symlink_to(program)
    for stand_in, script in STAND_INS.items():
        (programs / stand_in).write_text(f"#!/bin/sh\n{script}\n")
        (programs / stand_in).chmod(0o755)
    if name in STARTS_EMPTY:
        return
    (folder / "build").mkdir()
    (folder / "build" / "chimera").symlink_to(program)
    (folder / "build" / "benchmarks").symlink_to(pathlib.Path(program).parent / "benchmarks")
    for each in ["machines", "recipes", "tools", "benchmarks"]:
        (folder / each).symlink_to(sources / each)
    (folder / "book.txt").write_text(
        subprocess.run([program, "plan", "--help-all"], capture_output=True, text=True, check=True).stdout * 4)
    (folder / "path" / "to").mkdir(parents=True)
    (folder / "path" / "to" / "gpt2").symlink_to(model)


def make_model(folder, program):
    """Exports a small model, for documents that start from a Hugging Face folder."""
    (folder / "text").write_text("A pipeline of four workers. " * 500)
    subprocess.run([program, "train", "--schedule", "none", "--data", "text", "--layers", "2", "--steps", "1", "--export",
                    "gpt2"], cwd=folder, check=True, capture_output=True)
    return folder / "gpt2"


def other_pictures(folder, sources):
    """Yields the pictures in `folder` that differ from docs/images."""
    for drawn in sorted((folder / "images").glob("*.svg")):
        kept = sources / "docs" / "images" / drawn.name
        if not kept.is_file() or kept.read_bytes() != drawn.read_bytes():
            yield f"docs/images/{drawn.name}"


def failures(name, program, sources, model):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        prepare(folder, name, program, sources, model)
        environment = dict(os.environ, PATH=f"{folder}/.programs:{os.environ['PATH']}", HOME=scratch)
        for line, body, mark in blocks((sources / name).read_text()):
            if mark:
                continue
            done = subprocess.run(["timeout", str(SECONDS), "sh", "-ec", body], cwd=folder, env=environment,
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                yield f"{name}:{line}: ended with {done.returncode}\n{done.stderr}"
        for picture in other_pictures(folder, sources):
            yield f"{name}: draws another {picture}; run its commands in docs/"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("sources", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    found, run, marked, counted = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        model = make_model(pathlib.Path(scratch), options.program)
        for name in documents(options.sources):
            if options.only and options.only != name:
                continue
            for line, body, mark in blocks((options.sources / name).read_text()):
                run, marked = run + (not mark), marked + bool(mark)
                counted += bool(mark) and (name == "README.md" or name.startswith("docs/"))
                if options.list:
                    print(f"{name}:{line}: {f'not run: {mark}' if mark else body.splitlines()[0]}")
            for failure in [] if options.list else failures(name, options.program, options.sources, model):
                print(failure, flush=True)
                found.append(failure)
    if counted > MOST_MARKS:
        found.append(f"README.md and docs/ have {counted} marked blocks; at most {MOST_MARKS} are allowed")
        print(found[-1])
    print(f"{run} blocks run, {marked} marked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
