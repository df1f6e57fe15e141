#!/usr/bin/env python3
"""Writes tests/data/fixtures: the same three documents as token files in every format.

It needs only numpy, and uses the layouts of the formats' own programs (src/data/token_format.h lists their sources).
The C++ tests compare their readers with the files and need no Python.

    pip install numpy==2.4.6
    python tools/make_token_fixtures.py
"""

import pathlib
import struct

import numpy

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "fixtures"
END_OF_TEXT = 99  # Of the documents below; the ids of llm.c are too large for a small model
# In Megatron's format, the second document has two sequences.
DOCUMENTS = [[[5, 6, 7, END_OF_TEXT]], [[11, 12], [13, END_OF_TEXT]], [[21, END_OF_TEXT]]]
SEQUENCES = [sequence for document in DOCUMENTS for sequence in document]
TOKENS = [token for sequence in SEQUENCES for token in sequence]
MEGATRON_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write(name, *parts):
    (FIXTURES / name).write_bytes(b"".join(parts))


def write_megatron(dtype):
    lengths = numpy.array([len(sequence) for sequence in SEQUENCES], dtype=numpy.int32)
    ends = numpy.cumsum(lengths.astype(numpy.int64) * numpy.dtype(dtype).itemsize)
    pointers = numpy.concatenate([[0], ends[:-1]]).astype(numpy.int64)
    documents = numpy.cumsum([0] + [len(document) for document in DOCUMENTS]).astype(numpy.int64)
    write(f"{dtype}.bin", numpy.array(TOKENS, dtype=dtype).tobytes())
    write(f"{dtype}.idx", b"MMIDIDX\x00\x00", struct.pack("<Q", 1), struct.pack("<B", MEGATRON_CODES[dtype]),
          struct.pack("<Q", len(lengths)), struct.pack("<Q", len(documents)), lengths.tobytes(), pointers.tobytes(),
          documents.tobytes())


def write_llmc(name, magic, version, dtype):
    header = numpy.zeros(256, dtype=numpy.int32)
    header[:3] = magic, version, len(TOKENS)
    begins = [token for document in DOCUMENTS for token in [END_OF_TEXT, *sum(document, [])[:-1]]]
    write(name, header.tobytes(), numpy.array(begins, dtype=dtype).tobytes())


FIXTURES.mkdir(exist_ok=True)
for code in MEGATRON_CODES:
    write_megatron(code)
write_llmc("llmc_gpt2.bin", 20240520, 1, numpy.uint16)
write_llmc("llmc_llama3.bin", 20240801, 7, numpy.uint32)
write("raw.bin", numpy.array(TOKENS, dtype=numpy.uint16).tobytes())
