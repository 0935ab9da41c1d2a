"""The forward pass against what it must be: reference logits, perplexity, and a float64 implementation of the architectures."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import reference
from harness.appliance import TOP, clean_env, program

MODELS = os.path.join(TOP, 'models')
Q4, Q8 = (os.path.join(MODELS, 'lapis-hybrid-%s.gguf' % q) for q in ('q4_k_m', 'q8_0'))
with open(os.path.join(MODELS, 'reference.json')) as f:
    LAPIS = json.load(f)['models']['lapis-hybrid']


def tool(*args, timeout=280):
    p = subprocess.run([program('vitriol-tool')] + [str(a) for a in args], env=clean_env(), stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=timeout)
    assert p.returncode == 0, (args, p.returncode, p.stderr)
    return p.stdout


def logits(model, ids, tmp_path, *more):
    (tmp_path / 'ids').write_text(' '.join(str(i) for i in ids))
    tool('eval', '-m', model, '--tokens', tmp_path / 'ids', '--logits', tmp_path / 'out.npy', '--ctx', max(256, len(ids)), *more)
    out = np.load(tmp_path / 'out.npy')
    assert out.dtype == np.float32 and len(out) == len(ids) - ('--draft' in more)
    return out


def distance(got, want):
    """Relative rms of the difference."""
    return np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())


@pytest.mark.parametrize('prompt', range(3))
def test_q8_0_against_the_reference_logits(prompt, tmp_path):
    """Q8_0 weights against float32 on the f16 weights: the best ids are the same where the reference tells them apart by
    more than the rounding of the weights, and no value is further off than that."""
    p = LAPIS['prompts'][prompt]
    row = logits(Q8, p['ids'], tmp_path)[-1]
    ids = [i for i, _ in p['top20']]
    want = np.array([v for _, v in p['top20']])
    off = np.abs(row[ids] - want)
    assert off.max() < 0.3 and off.mean() < 0.15, off
    assert row.argmax() == ids[0] or want[0] - want[1] < 0.1
    assert len(set(np.argsort(-row)[:20]) & set(ids)) >= 18
    lse = np.log(np.exp(row.astype(np.float64) - row.max()).sum()) + row.max()
    assert abs(lse - p['logsumexp']) < 0.3


@pytest.mark.parametrize('model,ctx,want', [
    (Q4, 512, 41.6894), (Q4, 2048, 37.4138), (Q8, 512, 41.227), (Q8, 2048, 36.9626),
], ids=['q4_k_m-512', 'q4_k_m-2048', 'q8_0-512', 'q8_0-2048'])
def test_perplexity(model, ctx, want):
    """Within half a percent of the table in models/MODELS.md."""
    r = json.loads(tool('eval', '-m', model, '--text', os.path.join(MODELS, 'eval.txt'), '--ctx', ctx, '--json', timeout=900))
    assert r['windows'] == {512: 101, 2048: 25}[ctx]
    assert abs(r['perplexity'] / want - 1) < 0.005, r


# The engine keeps K and V in F16. Against a reference that rounds them so too, its logits are within this relative rms for every
# architecture; measured on 2026-11-30: gemma3 4.7e-4, all others at most 1.4e-4.
BOUND = 1e-3


@pytest.mark.parametrize('case', sorted(reference.CASES))
def test_float64_reference(case, tmp_path):
    """Every architecture: the logits to BOUND, and the best id of exact attention at every position. How far exact attention is
    away is a matter of the rounding of K and V alone: of the two references, 2.2e-3 with experts (qwen3moe), up to 1.5e-3 without."""
    arch, opts = reference.CASES[case]
    kv, w, c = reference.build(arch, **opts)
    reference.write(tmp_path / 'm.gguf', kv, w)
    ids = reference.toks(96)
    exact, rounded = (reference.forward(arch, w, dict(c, f16=f16), ids) for f16 in (False, True))
    assert distance(rounded, exact) <= 3e-3
    for simd in 'auto', 'ref':
        got = logits(tmp_path / 'm.gguf', ids, tmp_path, '--simd', simd)
        assert (got.argmax(-1) == exact.argmax(-1)).all()
        assert distance(got, rounded) <= BOUND, distance(got, rounded)
        print('%s, %s: %.1e from the reference with F16 K and V, %.1e from exact attention' % (
            case, simd, distance(got, rounded), distance(got, exact)))


def fused(w, c):
    """Gate and up of all experts in one tensor, as newer converters write them."""
    for name in [n for n in w if n.endswith('ffn_gate_exps.weight')]:
        block = name[:-len('ffn_gate_exps.weight')]
        w[block + 'ffn_gate_up_exps.weight'] = np.concatenate([w.pop(name), w.pop(block + 'ffn_up_exps.weight')], 1)


def one_by_one(w, c):
    """A tensor an expert, as the first converters wrote them."""
    for name in [n for n in w if n.endswith('_exps.weight')]:
        for i, expert in enumerate(w.pop(name)):
            w[name.replace('_exps.weight', '.%d.weight' % i)] = expert


def mixed_projections(w, c):
    """q, k, v and gate of a delta net key head by key head, as the first qwen3next files have them."""
    nk, dk, vw = c['nk'], c['dk'], c['nv'] // c['nk'] * c['dvh']
    for name in [n for n in w if n.endswith('attn_qkv.weight')]:
        block = name[:-len('attn_qkv.weight')]
        rows, z = w.pop(name), w.pop(block + 'attn_gate.weight')
        q, k, v = np.split(rows, [nk * dk, 2 * nk * dk])
        part = lambda a, n, g: a[g * n:(g + 1) * n]
        w[block + 'ssm_in.weight'] = np.concatenate(
            [np.concatenate([part(q, dk, g), part(k, dk, g), part(v, vw, g), part(z, vw, g)]) for g in range(nk)])


@pytest.mark.parametrize('case,change', [('qwen3moe', fused), ('qwen35moe', fused), ('mixtral', one_by_one),
                                         ('qwen3next', mixed_projections)],
                         ids=lambda x: getattr(x, '__name__', x))
def test_another_layout_gives_the_same_bits(case, change, tmp_path):
    arch, opts = reference.CASES[case]
    kv, w, c = reference.build(arch, **opts)
    ids = reference.toks(96)
    reference.write(tmp_path / 'm.gguf', kv, w)
    want = logits(tmp_path / 'm.gguf', ids, tmp_path)
    before = len(w)
    change(w, c)
    assert len(w) != before
    reference.write(tmp_path / 'm.gguf', kv, w)
    assert (logits(tmp_path / 'm.gguf', ids, tmp_path) == want).all()


def linear_rope(kv, w, c, rng):
    kv['llama.rope.scaling.type'] = (reference.STR, 'linear')
    kv['llama.rope.scaling.factor'] = (reference.F32, 4.0)
    c['fs'] = 1 / 4


def old_linear_key(kv, w, c, rng):
    kv['llama.rope.scale_linear'] = (reference.F32, 4.0)
    c['fs'] = 1 / 4


def biases(kv, w, c, rng):
    for name in [n for n in w if '.attn_q.' in n or '.attn_k.' in n or '.attn_v.' in n]:
        w[name.replace('.weight', '.bias')] = rng.randn(len(w[name])).astype(np.float32)


def capped(kv, w, c, rng):
    kv['gemma3.final_logit_softcapping'] = (reference.F32, 3.0)
    c['fcap'] = 3.0


def pattern_of_flags(kv, w, c, rng):
    kv['gemma3.attention.sliding_window_pattern'] = (reference.ARR, (reference.BOOL, [i % 6 < 5 for i in range(12)]))


def weighted_experts(kv, w, c, rng):
    kv['qwen3moe.expert_weights_scale'] = (reference.F32, 2.5)
    c['wscale'] = 2.5


@pytest.mark.parametrize('case,change', [('llama', linear_rope), ('llama', old_linear_key), ('llama', biases),
                                         ('gemma3', capped), ('gemma3', pattern_of_flags),
                                         ('qwen3moe', weighted_experts)],
                         ids=lambda x: getattr(x, '__name__', x))
def test_what_keys_change(case, change, tmp_path):
    """A key or tensor that changes the result changes it as the reference says, and by much more than the bound."""
    arch, opts = reference.CASES[case]
    kv, w, c = reference.build(arch, **opts)
    c['f16'] = True
    ids = reference.toks(64)
    plain = reference.forward(arch, w, c, ids)
    change(kv, w, c, np.random.RandomState(5))
    want = reference.forward(arch, w, c, ids)
    reference.write(tmp_path / 'm.gguf', kv, w)
    got = logits(tmp_path / 'm.gguf', ids, tmp_path)
    assert distance(got, want) <= BOUND, distance(got, want)
    assert change is pattern_of_flags or distance(plain, want) > 1e-2


@pytest.mark.parametrize('case', ['qwen35', 'qwen35moe'])
def test_draft_block_reference(case, tmp_path):
    """The draft (MTP) block after the trunk's hidden vectors: row p says what comes at p + 2."""
    arch, opts = reference.CASES[case]
    kv, w, c = reference.build(arch, **opts)
    reference.write(tmp_path / 'm.gguf', kv, w)
    ids = reference.toks(65)
    hidden = reference.forward(arch, w, c, ids[:-1], ret_h=True)[2]
    want = reference.mtp(arch, w, c, ids[1:], hidden, np.arange(64.0))[0]
    for ubatch in 7, 256:
        got = logits(tmp_path / 'm.gguf', ids, tmp_path, '--draft', '--ubatch', ubatch)
        assert distance(got, want) <= BOUND, distance(got, want)
        assert (got.argmax(-1) == want.argmax(-1)).all()


@pytest.mark.parametrize('prompt', range(3))
def test_trained_draft_block(prompt, tmp_path):
    """Q8_0 weights against float32 on the f16 weights, as for the trunk."""
    p = LAPIS['prompts'][prompt]
    row = logits(Q8, p['ids'] + [p['mtp_next']], tmp_path, '--draft')[-1]
    off = np.abs(row[[i for i, _ in p['mtp_top20']]] - np.array([v for _, v in p['mtp_top20']]))
    assert off.max() < 0.3 and off.mean() < 0.15, off
    assert row.argmax() == p['mtp_top20'][0][0]


@pytest.mark.parametrize('ubatch', [1, 7, 64])
def test_chunking_changes_no_bit(ubatch, tmp_path):
    ids = LAPIS['prompts'][0]['ids'] * 12
    a = logits(Q4, ids, tmp_path)
    b = logits(Q4, ids, tmp_path, '--ubatch', ubatch)
    assert (a == b).all()


def test_threads_change_no_bit(tmp_path):
    ids = LAPIS['prompts'][1]['ids'] * 6
    assert (logits(Q4, ids, tmp_path, '-t', 1) == logits(Q4, ids, tmp_path, '-t', 2)).all()


def test_needles():
    """Recall at depth through the whole engine: two of the fixed prompts of 2048 tokens."""
    with open(os.path.join(MODELS, 'needles.json')) as f:
        data = json.load(f)
    with open(os.path.join(MODELS, 'eval.txt'), 'rb') as f:
        text = f.read()
    done = 0
    for c in data['prompts']:
        if c['ctx'] != 2048 or c['depth'] not in (0, 0.5):
            continue
        prompt = b''.join(text[p[0]:p[1]] if isinstance(p, list) else p.encode() for p in c['parts']).decode()
        out = tool('run', '-m', Q4, '-p', prompt, '-n', 8, '--ctx', 2560, '--raw', '--temp', 0)
        assert out.strip().startswith(c['answer'].strip()), (out, c['answer'])
        done += 1
    assert done == 2


def test_inspect_is_quick(tmp_path):
    import resource

    def used():  # of the processor, since others run on it too
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return r.ru_utime + r.ru_stime
    before = used()
    out = tool('inspect', Q8)
    assert used() - before < 1.0
    assert 'qwen35' in out and 'blk.0.' in out


def test_inspect_of_a_truncated_file_is_no_success(tmp_path):
    cut = tmp_path / 'cut.gguf'
    with open(Q8, 'rb') as f:
        cut.write_bytes(f.read(3000000))
    p = subprocess.run([program('vitriol-tool'), 'inspect', str(cut)], env=clean_env(), capture_output=True, text=True)
    assert p.returncode == 65 and 'truncated' in p.stderr and 'blk.0.' in p.stdout
