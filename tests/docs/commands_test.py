"""Runs every command block in the documents, unless a mark above it states why not:

    <!-- not run: trains for minutes -->

Usage: commands_test.py CHIMERA SOURCES [--list]. A block contains commands if one of its lines begins with a program's
name. The blocks of a document run in order in one folder with book.txt, machines/ and recipes/. --list prints the
marked blocks.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAMS = re.compile(r"^(sudo |[A-Z_]+=\S+ )*(chimera|build/chimera|\./dev|build/|benchmarks/|tools/|cmake|cpack|"
                      r"apt|pip|python3?|torchrun|srun|sbatch|mpirun|mpiexec|docker|apptainer|git|\.venv/)(?![\w:])")
SECONDS = 60  # Limit of a block
MARK = re.compile(r"<!-- not run: (.+) -->")


def blocks(text):
    """Returns each command block: number of its first line, text, and the mark above it or None."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = number
            continue
        body = [each.strip() if lines[start].startswith(" ") else each for each in lines[start + 1:number]]
        if any(each.startswith("$ ") for each in body):  # Commands with their output
            body = [each[2:] for each in body if each.startswith("$ ")]
        is_shell = lines[start].strip() in ("```", "```sh", "```console")
        if is_shell and any(PROGRAMS.match(each) for each in body):
            mark = MARK.search(lines[start - 1]) if start else None
            yield start + 2, "\n".join(body), mark and mark[1]
        start = None


def documents(sources):
    return [*sorted((sources / "docs").glob("*.md")), *(sources / name for name in [
        "README.md", "CONTRIBUTING.md", "recipes/README.md", "benchmarks/README.md"])]


def prepare(folder, program, sources):
    (folder / "bin").mkdir()
    (folder / "build").mkdir()
    (folder / "pictures").mkdir()
    for place in ["bin/chimera", "build/chimera"]:
        (folder / place).symlink_to(program)
    for name in ["machines", "recipes", "tools"]:
        (folder / name).symlink_to(sources / name)
    text = subprocess.run([program, "plan", "--help-all"], capture_output=True, text=True, check=True).stdout
    (folder / "book.txt").write_text(text * 4)


def failures(document, program, sources):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, program, sources)
        environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", HOME=name)
        for line, body, mark in blocks(document.read_text()):
            if mark:
                continue
            command = ["timeout", str(SECONDS), "sh", "-ec", body]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL)
            if done.returncode:
                yield f"{document.relative_to(sources)}:{line}: ended with {done.returncode}\n{done.stderr}"


def main():
    program, sources = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    found, run, marked = [], 0, 0
    for document in documents(sources):
        for line, body, mark in blocks(document.read_text()):
            run, marked = run + (not mark), marked + bool(mark)
            if mark and "--list" in sys.argv:
                print(f"{document.relative_to(sources)}:{line}: {mark}")
        found += failures(document, program, sources)
    for failure in found:
        print(failure)
    print(f"{run} blocks run, {marked} marked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
