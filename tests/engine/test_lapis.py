"""Perplexity of the whole lapis family: three architectures, F16 and quantized. Most of it is too large for the repository.

VITRIOL_MODELS names a folder with the files; without it the tests are skipped. What a file must give on models/eval.txt is known
from another engine (llama.cpp family, CPU, F16 KV cache): half a percent away is too far. About five minutes on two cores."""
import hashlib
import json
import os
import subprocess

import pytest

from harness.appliance import TOP, clean_env, program

FOLDER = os.environ.get('VITRIOL_MODELS', '')
EVAL = os.path.join(TOP, 'models', 'eval.txt')
WINDOWS = {512: 101, 2048: 25, 8192: 6}
# sha256, and perplexity in windows of 512, 2048 and 8192 tokens
FAMILY = {
    'lapis-dense-f16': ('b09ed59013ada6431cdf5b10a69eca10dba73d606a47b2696de0948d05803822', 41.018, 36.018, 35.177),
    'lapis-dense-q4_k_m': ('86ccf7336509b48f5eac144441db72830b0a4fb8bac1bf627662658a95f05d58', 41.486, 36.434, 35.570),
    'lapis-hybrid-f16': ('b7b2c555045917c09f5f73315a693105fb14b2bfcd2f4861442cc089ab68c78e', 41.227, 36.943, 35.767),
    'lapis-hybrid-q4_k_m': ('78fc1c7ccc66f53fba7b51cece21124acc91d096a3f2b801d76b0c5c1c9f0ee3', 41.689, 37.414, 36.258),
    'lapis-hybrid-q8_0': ('c98e717d9b7739acd1f2263ca12b88efd207f6e3e5c1d158bba90009bf170bc9', 41.227, 36.963, 35.779),
    'lapis-moe-q8_0': ('3750dbe095b7d7c73a9434dd6a65f151615abe88f886d08721fb9e4e3907436f', 41.707, 36.578, 35.455),
}


@pytest.fixture(scope='session')
def folder():
    if not FOLDER:
        pytest.skip('VITRIOL_MODELS names no folder with the lapis models')
    return FOLDER


@pytest.mark.timeout(1200)
@pytest.mark.parametrize('ctx', WINDOWS)
@pytest.mark.parametrize('name', FAMILY)
def test_perplexity(name, ctx, folder):
    path = os.path.join(folder, name + '.gguf')
    if not os.path.exists(path):
        pytest.skip('%s is not there' % path)
    sha256, *want = FAMILY[name]
    with open(path, 'rb') as f:
        assert hashlib.sha256(f.read()).hexdigest() == sha256, '%s is another file than the one that the figures are of' % path
    p = subprocess.run([program('vitriol-tool'), 'eval', '-m', path, '--text', EVAL, '--ctx', str(ctx), '--json'],
                       env=clean_env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200)
    assert p.returncode == 0, p.stderr
    r = json.loads(p.stdout)
    off = r['perplexity'] / want[list(WINDOWS).index(ctx)] - 1
    print('LAPIS %s %d %.4f %+.3f %%' % (name, ctx, r['perplexity'], 100 * off))
    assert r['windows'] == WINDOWS[ctx]
    assert abs(off) < 0.005, r
