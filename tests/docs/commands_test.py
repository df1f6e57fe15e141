"""Every block of commands in the documents is run, or says above itself why it is not:

    <!-- not run: trains for minutes -->

Usage: commands_test.py CHIMERA SOURCES [--list]. A block is one of commands where a line of it begins with a program's
name. Blocks of one document run in one folder, in order, with book.txt, machines/ and recipes/ in it. --list prints
those that are marked.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAMS = re.compile(r"^(sudo |[A-Z_]+=\S+ )*(chimera|build/chimera|\./dev|build/|benchmarks/|tools/|cmake|cpack|"
                      r"apt|pip|python3?|torchrun|srun|sbatch|mpirun|mpiexec|docker|apptainer|git|\.venv/)(?![\w:])")
SECONDS = 60  # that a block may take
MARK = re.compile(r"<!-- not run: (.+) -->")


def blocks(text):
    """Each block of commands: its first line's number, its text, and the mark above it or None."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = number
            continue
        body = [each.strip() if lines[start].startswith(" ") else each for each in lines[start + 1:number]]
        if any(each.startswith("$ ") for each in body):  # with what they print
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
