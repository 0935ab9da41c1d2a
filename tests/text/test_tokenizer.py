"""The tokenizer against the public `tokenizers` package: ids with the embedded model's vocabulary, pieces of every
pre-tokenizer, on random text from all of Unicode."""
import json
import os
import random
import subprocess
import unicodedata

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers

from harness.appliance import MODEL, TOP, program

WORDS = [
    'hello', 'World', "I'm", "don't", "WE'LL", "they've", "he'd", "'s", "'S", "'lL", "''", 'na\u00efve', 'e\u0301', 'A\u030a',
    '\ud55c\uad6d\uc5b4', '\u3147\u314f', '\u0928\u092e\u0938\u094d\u0924\u0947', '\u0e2a\u0e27\u0e31\u0e2a',
    '\u65e5\u672c\u8a9e\u30c6\u30b9\u30c8', '\u4e2d\u6587', 'Vi\u1ec7t', '\u0391\u0392\u0393', '\u01c5', '3.14', '1234567',
    '\u0663\u0664\u0665', '\u00b2\u00b3', '\u00bd', '\U0001f600', '\U0001f469\u200d\U0001f467', '\r\n', '\n\n', '\t\t', '   ',
    '...', '!!', '/', '//\n', '==', 'HTTPServer', 'camelCase', 'x=1;', '\u0000', '\u200b', '\ufeff', '<think>', '</think>',
    '<tool_call>', '<|im_end|>', '<|im_', '$a+b^c`d|e~f', '\u20ac', '\u00a0', '\u3000', '\u0958', '\u2126', '\u1100\u1161\u11a8',
]
SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xa0, 0x1680, 0x2003, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000)]


def by_category():
    """Characters of every category, all planes. Only ones that Unicode has had for long, so that tables of any age agree."""
    cats = {}
    for cp in range(0x110000):
        c = chr(cp)
        if not 0xd800 <= cp < 0xe000 and unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) != 'Cn':
            cats.setdefault(unicodedata.category(c), []).append(c)
    return cats


CATS = by_category()


def texts(n, seed):
    rng, out = random.Random(seed), []
    for _ in range(n):
        s = ''
        for _ in range(rng.randint(1, 12)):
            r = rng.random()
            if r < .45:
                s += rng.choice(WORDS)
            elif r < .6:
                s += rng.choice(SPACES) * rng.randint(1, 3)
            elif r < .7:
                s += ' '
            elif r < .82:
                s += chr(rng.randrange(32, 127))
            else:
                s += ''.join(rng.choice(CATS[rng.choice(list(CATS))]) for _ in range(rng.randint(1, 3)))
        out.append(s)
    return out


def cli(args, inputs):
    p = subprocess.run([program('tok_cli')] + args, input=''.join(json.dumps(s) + '\n' for s in inputs), capture_output=True,
                       text=True, timeout=120)
    assert p.returncode == 0, p.stderr
    return [json.loads(ln) for ln in p.stdout.split('\n') if ln]


def same(inputs, got, want):
    bad = ['%s\n  want %s\n  got  %s' % (ascii(s), w, g) for s, g, w in zip(inputs, got, want) if g != w]
    assert len(got) == len(inputs)
    assert not bad, '%d of %d differ\n%s' % (len(bad), len(inputs), '\n'.join(bad[:5]))


@pytest.fixture(scope='module')
def reference():
    return Tokenizer.from_file(os.path.join(TOP, 'models', 'tokenizer.json'))


def test_ids(reference):
    xs = texts(4000, 1)
    same(xs, cli(['-s', '-n', MODEL], xs), [reference.encode(s, add_special_tokens=False).ids for s in xs])


def test_ids_are_those_of_composed_text(reference):
    xs = texts(1500, 2)
    same(xs, cli(['-s', MODEL], xs),
         [reference.encode(unicodedata.normalize('NFC', s), add_special_tokens=False).ids for s in xs])


def test_ids_of_the_evaluation_text(reference):
    with open(os.path.join(TOP, 'models', 'eval.txt'), encoding='utf-8') as f:
        text = f.read()
    xs = [text] + text.split('\n')
    same(xs, cli(['-s', '-n', MODEL], xs), [reference.encode(s, add_special_tokens=False).ids for s in xs])


def test_decoding_gives_the_text_back():
    """-d compares the bytes of the tokens with the input."""
    cli(['-d', '-n', MODEL], texts(1000, 3))
    cli(['-d', '-n', '-s', MODEL], texts(1000, 4))


C = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    'gpt-2': [GPT2],
    'smollm': [r'\p{N}', GPT2],
    'llama-bpe': [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
    'qwen2': [C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
    'qwen35': [C + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL],
    'gpt-4o': [r"[^\r\n\p{L}\p{N}]?" + UP + "*" + LOW + "+" + C + r"?|[^\r\n\p{L}\p{N}]?" + UP + "+" + LOW + "*" + C +
               r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL],
    'tekken': [r"[^\r\n\p{L}\p{N}]?" + UP + "*" + LOW + r"+|[^\r\n\p{L}\p{N}]?" + UP + "+" + LOW +
               r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL],
    'deepseek-v3': [r'\p{N}{1,3}', '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+',
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" +
                    TAIL],
    'deepseek-coder': [r'[\r\n]', r'\s?\p{L}+', r'\s?\p{P}+', '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+', r'\p{N}'],
    'falcon': [r'[\p{P}\$\+<=>\^~\|`]+', GPT2, '[0-9][0-9][0-9]'],
    'default': [r'[\p{P}\$\+<=>\^~\|]+', GPT2, r'\p{N}+', '[0-9][0-9][0-9]'],
}


@pytest.mark.parametrize('name', PATTERNS)
def test_pieces(name):
    splits = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), 'isolated') for p in PATTERNS[name]])
    xs = texts(1500, 5)
    same(xs, cli(['-p', name], xs), [[piece for piece, _ in splits.pre_tokenize_str(s)] for s in xs])
