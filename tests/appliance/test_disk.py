"""A small filesystem for the state: it fills up, saving is refused cleanly, serving goes on, old checkpoints restore."""
import os
import subprocess

import pytest

from harness.appliance import wait_for
from harness.stream import post
from harness.text import prose

SETS = {'engine.ctx_tokens': 2048, 'engine.slots': 4, 'store.quota_mib': 4096}


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip('mounting needs root')
    d = str(tmp_path / 'small')
    os.mkdir(d)
    if subprocess.call(['mount', '-t', 'tmpfs', '-o', 'size=24m,mode=0777', 'tmpfs', d]) != 0:
        pytest.skip('this machine does not let us mount a tmpfs')
    yield d
    subprocess.call(['umount', '-l', d])


def ask(a, prompt, n=4):
    r = post(a.port, '/completion', {'prompt': prompt, 'n_predict': n, 'temperature': 0})
    assert r.status == 200
    return r.json()


def test_full_disk(make, small_disk):
    a = make(sets=SETS, state_dir=small_disk)
    kept = prose(3000)
    first = ask(a, kept)
    a.ctl('checkpoint')
    # something else takes the rest of the space
    with open(os.path.join(small_disk, 'filler'), 'wb') as f:
        try:
            while True:
                f.write(b'x' * 65536)
                f.flush()
        except OSError:
            pass
    texts = []
    for i in range(1, 4):
        texts.append((prose(6000, 20000 * i), None))
        texts[-1] = (texts[-1][0], ask(a, texts[-1][0])['content'])
    code, _ = a.ctl('checkpoint', check=False)
    assert code != 0, 'a checkpoint onto a full disk was acknowledged'
    store = a.child('store')
    for prompt, text in texts:
        assert ask(a, prompt)['content'] == text
    assert a.child('store') == store, 'the store died of a full disk'
    assert a.log_text().count('store.min_free_mib') >= 1
    a.next_generation('engine0', a.kill('engine0'))
    again = ask(a, kept)
    assert again['content'] == first['content']
    assert again['timings']['cache_n'] >= again['tokens_evaluated'] - 256, 'the checkpoint of before is lost'
    os.unlink(os.path.join(small_disk, 'filler'))
    wait_for('saving works again', lambda: a.ctl('checkpoint', check=False)[0] == 0, 30, 0.5)


def test_quota(make):
    """A quota of 16 MiB holds although many prompts are saved."""
    a = make(sets=dict(SETS, **{'store.quota_mib': 16}))
    for i in range(10):
        ask(a, prose(6000, 15000 * i))
        a.ctl('checkpoint', check=False)
    size = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(a.state_dir) for f in fs)
    assert size < 24 << 20, size
    last = ask(a, prose(6000, 15000 * 9))
    assert last['content']


def test_broken_database_is_moved_aside(make):
    a = make(sets=SETS)
    p = prose(3000, 2000)
    first = ask(a, p)
    a.ctl('checkpoint')
    assert a.stop() == 0
    for r, _, fs in os.walk(a.state_dir):
        for f in fs:
            if f.endswith('.db'):
                with open(os.path.join(r, f), 'r+b') as h:
                    h.write(os.urandom(8192))
    a.start()
    assert ask(a, p)['content'] == first['content']
    wait_for('the store works', lambda: a.ctl('checkpoint', check=False)[0] == 0, 15, 0.3)
