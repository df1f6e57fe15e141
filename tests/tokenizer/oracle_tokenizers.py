"""Tokenizers of every kind that Chimera reads, made with the Python package tokenizers, and texts that try them."""

import json
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

VOCABULARY = 1500  # tokens of each, about

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\u180e"
MARKS = "\u0300\u0301\u0307\u0323\u0328\u0345\u05b0\u093c\u0e38\u20d0\u302a\u1885\ua9bd\U000111c9\u1734"
LETTERS = "aAeEiIoOsSßñéÅÄöüøŁſΣσςІЯяאب日本語漢字한글각ก\u0130\u01c5\ufb01\u212b\u1e9e\U00020000\U0001e900"
DIGITS = "0123456789²½٣५Ⅷ①𝟘"
OTHERS = "'!?.,;:-_()[]{}<>|/\\@#$%^&*+=~`\"\u2581\u2014\u20ac\u166d\u00ab😀👩\u200d👧🏽🇩🇪\ufffd\ue000\x00\x01\x7f\xad"
PIECES = ["'s", "'S", "'ſ", "'re", "'LL", "'d", "'", "  ", "\n\n", "\r\n", " \n ", "the", " and", "Hello", " World",
          "don't", "<s>", "</s>", "<|endoftext|>", "[CLS]", "[MASK]", "added", "Added", " added ", "<0x41>", "1234",
          "3.14"]

EDGES = ["", " ", "  ", "   a", "a   ", "a\n", "\n", "\n\n", "\na", " \n a", "\r\n\r\n x", "\t\tx", "a\u00a0b", "'s", "'S",
         "x's", "x'S", "'ſ", "I'll we've THEY'RE", "1234567890", "a1b22c333d4444", "\u2581", "\u2581\u2581a", " \u2581a",
         "e\u0301", "\u00e9", "\u1100\u1161\u11a8", "\uac01", "a\u0323\u0307", "\u212b\u2126", "\ufb01", "ǅ", "İstanbul",
         "ΌΣΟΣ", "日本語のテキスト", "漢a字", "👩‍👧", "🇩🇪🏽", "\ufffd", "\ufeffx", "\x00a", "a\x00", "\x85a\x85", "a\u200bb",
         "a\xadb", "<s>", "<s></s>", " <s> ", "a<s>b", "<|endoftext|>", "<|endoftext", "x<|endoftext|> y",
         "[CLS] [MASK] [SEP]", "added", "xadded", "added!", " added ", "reAdded", "  [MASK]  x", "<0x41><0x0A>", "a" * 101,
         "ab" * 300, "x" * 2000, " " * 50, "\n" * 50, "é" * 120, "漢" * 120, "a\u0301" * 60, "<unk>", "don't stop",
         "A.B.C.", "--- ---", "f(x)=y;\n\treturn"]


def random_text(rng):
    """Some characters: of one kind or of several, with pieces that patterns and added tokens look for."""
    kinds = [BLANKS, MARKS, LETTERS, DIGITS, OTHERS]
    chosen = rng.sample(kinds, rng.randint(1, len(kinds)))
    parts = []
    for _ in range(rng.randint(1, 14)):
        dice = rng.random()
        if dice < 0.2:
            parts.append(rng.choice(PIECES))
        elif dice < 0.35:
            parts.append(chr(rng.randint(0x20, 0x7e)))
        elif dice < 0.5:
            code = rng.randint(0, rng.choice([0x2ff, 0x2fff, 0x1ffff, 0x10ffff]))
            parts.append(chr(code) if not 0xd800 <= code < 0xe000 else "x")
        else:
            parts.append(rng.choice(rng.choice(chosen)))
    return "".join(parts)


def training_texts():
    """Something to learn from: the alphabets above, and words that share parts."""
    rng = random.Random(7)
    words = "the and of to in that he shall unto for lord his they be is him not them it with all thou thy was god which"
    syllables = ["ta", "re", "in", "on", "er", "an", "the", "st", "ing", "de", "lo", "mi", "é", "ß", "я", "漢字", "한글", "12",
                 "7", "'s"]
    texts = [" ".join(rng.choice(words.split()) for _ in range(12)) + rng.choice(".!?,\n") for _ in range(1500)]
    texts += [" ".join("".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(8)) for _ in range(1500)]
    return texts + [random_text(rng) for _ in range(500)]


def added_tokens():
    return [AddedToken("added", single_word=True, normalized=True),
            AddedToken("[MASK]", lstrip=True, normalized=False, special=True),
            AddedToken("</s>", rstrip=True, normalized=False, special=True),
            AddedToken("<|endoftext|>", normalized=False, special=True)]


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer


def byte_level(pre_tokenizer, normalizer=None, ignore_merges=False, tokens=True):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                         special_tokens=["<s>"], show_progress=False))
    if tokens:
        tokenizer.add_tokens(added_tokens())
    return tokenizer


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_prefix():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))


def llama3():
    tokenizer = byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 0)])])
    return tokenizer


def qwen2():
    return byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        normalizers.NFC())


def smollm2():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def bert(lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=VOCABULARY, limit_alphabet=150, show_progress=False,
                                               special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return tokenizer


def bert_cased():
    return bert(lowercase=False)


def with_bytes(all_bytes=True, **options):
    """A BPE of characters, few enough of them that others are unknown; rebuilt with the tokens of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    codes = [f"<0x{byte:02X}>" for byte in range(256) if all_bytes or byte % 3]
    train(tokenizer, trainers.BpeTrainer(vocab_size=VOCABULARY * 4 // 5, limit_alphabet=80, show_progress=False,
                                         special_tokens=["<unk>", "<s>", "</s>"] + codes))
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    rebuilt = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, unk_token="<unk>", **options))
    rebuilt.add_special_tokens(["<unk>", "<s>"])
    rebuilt.add_tokens(added_tokens())
    rebuilt.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                           special_tokens=[("<s>", 1)])
    return rebuilt


def sentence_piece_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                              decoders.Strip(" ", 1, 0)])


def llama2(all_bytes=True):
    tokenizer = with_bytes(all_bytes, byte_fallback=True, fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = sentence_piece_decoder()
    return tokenizer


def few_bytes():
    return llama2(all_bytes=False)


def no_bytes():
    tokenizer = with_bytes(byte_fallback=False, fuse_unk=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    return tokenizer


def mistral(scheme="first", split=False):
    tokenizer = with_bytes(byte_fallback=True, fuse_unk=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.decoder = sentence_piece_decoder()
    return tokenizer


def metaspace_always():
    tokenizer = mistral("always", True)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def digits_metaspace():
    tokenizer = mistral()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.Metaspace(prepend_scheme="first")])
    return tokenizer


KINDS = {make.__name__: make for make in (gpt2, gpt2_prefix, llama3, qwen2, smollm2, bert, bert_cased, llama2, few_bytes,
                                          no_bytes, mistral, metaspace_always, digits_metaspace)}
