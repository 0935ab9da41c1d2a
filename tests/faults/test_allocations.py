"""vitriold without memory: it neither dies nor forgets its children, and goes on when there is memory again."""
import mmap
import os
import struct
import time

import pytest

from harness.appliance import BUILD, Appliance, alive, wait_for

SHIM = os.path.join(BUILD, 'supervisor', 'failing-malloc.so')
SETS = {'engine.ctx_tokens': 1024, 'engine.slots': 2}


@pytest.fixture
def starved(tmp_path, monkeypatch):
    """An appliance whose vitriold, and nobody else, is refused every n-th allocation: refuse(n), 0 for none."""
    path = tmp_path / 'refuse'
    path.write_bytes(struct.pack('i', 0))
    f = open(path, 'r+b')
    m = mmap.mmap(f.fileno(), 4)
    a = Appliance(engine='stub', stub_args='rate=200', sets=SETS)
    with monkeypatch.context() as env:
        env.setenv('LD_PRELOAD', SHIM)
        env.setenv('VT_FAIL_FILE', str(path))
        a.start()

    def refuse(n):
        m[:] = struct.pack('i', n)

    try:
        yield a, refuse
    finally:
        refuse(0)
        a.destroy()


@pytest.mark.skipif(not os.path.exists(SHIM) or 'asan' in BUILD, reason='the allocator belongs to a sanitizer')
@pytest.mark.parametrize('n', [1, 3])
def test_restart_under_a_failing_allocator(starved, n):
    a, refuse = starved
    vitriold, old = a.pid, a.child('engine0')
    refuse(n)
    a.kill('engine0')
    time.sleep(3)
    assert alive(vitriold), 'vitriold is gone: %s' % a.log_text()[-2000:]
    refuse(0)
    wait_for('the engine is back', lambda: a.children().get('engine0') not in (None, old), 40)
    a.wait_ready()
    wait_for('the control socket hears', lambda: a.ctl('status', check=False)[0] == 0, 30, 0.5)
    assert a.pid == vitriold
    assert a.completion('Hello', 4, seed=1)
