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
# The letters that the pattern of deepseek-llm lists, as code points.
DEEPSEEK_LETTERS = '''
    41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A
    38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF
    1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D
    1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4
    1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F
    2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F
    A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3
    104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943
'''
LETTERS = '[%s]' % ''.join('-'.join(chr(int(c, 16)) for c in r.split('-')) for r in DEEPSEEK_LETTERS.split())
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
    'deepseek-llm': [r'[\r\n]', r'\s?' + LETTERS + '+', '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+', r'\s+$',
                     '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+', r'\p{N}+'],
    'deepseek-coder': [r'[\r\n]', r'\s?\p{L}+', r'\s?\p{P}+', '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+', r'\p{N}'],
    'falcon': [r'[\p{P}\$\+<=>\^~\|`]+', GPT2, '[0-9][0-9][0-9]'],
    'default': [r'[\p{P}\$\+<=>\^~\|]+', GPT2, r'\p{N}+', '[0-9][0-9][0-9]'],
}


@pytest.mark.parametrize('name', PATTERNS)
def test_pieces(name):
    splits = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), 'isolated') for p in PATTERNS[name]])
    xs = texts(1500, 5)
    same(xs, cli(['-p', name], xs), [[piece for piece, _ in splits.pre_tokenize_str(s)] for s in xs])
