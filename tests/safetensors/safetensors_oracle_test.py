"""The safetensors package and the product read the same files, sound and broken, and are of the same opinion.

Usage: safetensors_oracle_test.py VERDICTS, the program of verdicts.cc.
"""

import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import oracles

safetensors, numpy = oracles.require("safetensors", "numpy")
import safetensors.numpy  # noqa: E402

VERDICTS = sys.argv[1]
TYPES = {"F64": numpy.float64, "F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64, "I32": numpy.int32,
         "I16": numpy.int16, "I8": numpy.int8, "U8": numpy.uint8, "BOOL": numpy.bool_, "U16": numpy.uint16,
         "U32": numpy.uint32, "U64": numpy.uint64}


def our_verdicts(paths):
    text = "".join(f"{path}\n" for path in paths)
    lines = subprocess.run([VERDICTS], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(paths), "a verdict for every file"
    return lines


def reference_takes(path):
    try:
        safetensors.deserialize(path.read_bytes())
        return True
    except safetensors.SafetensorError:
        return False


def random_tensors(generator):
    tensors = {}
    for index in range(generator.randrange(5)):
        name, kind = generator.choice(list(TYPES.items()))
        shape = [generator.randrange(4) for _ in range(generator.randrange(4))]
        elements = [generator.randrange(2) for _ in range(int(numpy.prod(shape)))]
        tensors[f"{name}.{index}é\""] = numpy.array(elements, dtype=kind).reshape(shape)
    return tensors


def broken(generator, data):
    """`data` with one or two changes, most of them where they keep the header JSON."""
    length = int.from_bytes(data[:8], "little")
    header, body = data[8:8 + length].decode(), data[8 + length:]
    for _ in range(generator.randrange(1, 3)):
        kind = generator.randrange(8)
        digits = [i for i, c in enumerate(header) if c.isdigit()]
        if kind <= 2 and digits:
            at = generator.choice(digits)
            header = header[:at] + generator.choice("0123456789") + header[at + 1:]
        elif kind == 3:
            body = body[:generator.randrange(len(body) + 1)]
        elif kind == 4:
            body += bytes(generator.randrange(4))
        elif kind == 5:
            at = generator.randrange(len(header) + 1)
            header = header[:at] + generator.choice(['"', ",", "{", "}", "[", "]", ":", " ", "0", "-", "\\", "é"]) + header[at:]
        elif kind == 6:
            header = header.replace(generator.choice(list(TYPES)), generator.choice([*TYPES, "F8", "BF16", ""]), 1)
        else:
            at = generator.randrange(len(header) + 1)
            header = header[:at] + header[at + 1:]
    header = header.encode()
    length = len(header) + generator.choice([0] * 20 + [-1, 1, 8, 2**32, 2**63])
    return (length % 2**64).to_bytes(8, "little") + header + body


def is_stricter(line):
    """Where the product refuses on purpose what the reference takes."""
    return any(reason in line for reason in ("is in its header twice", "unknown field", "does not begin with"))


class SafetensorsOracleTest(unittest.TestCase):
    def test_every_tensor_of_sound_files(self):
        generator = random.Random(1)
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"{i}.safetensors" for i in range(200)]
            expected = []
            for path in paths:
                tensors = random_tensors(generator)
                safetensors.numpy.save_file(tensors, path, generator.choice([None, {"format": "np"}]))
                types = {numpy.dtype(kind): name for name, kind in TYPES.items()}
                fields = [[name, types[t.dtype], ",".join(map(str, t.shape)), t.tobytes().hex()]
                          for name, t in sorted(tensors.items(), key=lambda item: item[0].encode())]
                expected.append("\t".join(["ok", *sum(fields, [])]))
            self.assertEqual(our_verdicts(paths), expected)

    def test_the_same_opinion_of_broken_files(self):
        generator = random.Random(2)
        taken = refused = 0
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"{i}.safetensors" for i in range(4000)]
            for path in paths:
                path.write_bytes(broken(generator, safetensors.numpy.save(random_tensors(generator))))
            for path, line in zip(paths, our_verdicts(paths)):
                ours = line.startswith("ok")
                taken, refused = taken + ours, refused + (not ours)
                if not ours and is_stricter(line):
                    continue
                self.assertEqual(ours, reference_takes(path), f"{line}\n{path.read_bytes()}")
        self.assertGreater(taken, 100)
        self.assertGreater(refused, 2000)


unittest.main(argv=sys.argv[:1])
