"""The whole appliance stops and starts again: what was saved is there."""
import os
import shutil

from harness.appliance import MODEL, TOP, Appliance, program
from harness.stream import post
from harness.text import prose, short

SETS = {'engine.ctx_tokens': 2048, 'engine.slots': 4}


def cached(a, prompt, n=8):
    return post(a.port, '/completion', {'prompt': prompt, 'n_predict': n, 'temperature': 0}).json()


def test_warm_after_an_orderly_stop(make):
    a = make(sets=SETS)
    prompts = [prose(4000, 10000 * i) for i in range(3)]
    first = [cached(a, p) for p in prompts]
    assert a.stop() == 0
    a.start()
    for p, f in zip(prompts, first):
        r = cached(a, p)
        assert r['content'] == f['content']
        assert r['timings']['cache_n'] >= r['tokens_evaluated'] - 256, r['timings']


def test_warm_after_power_is_pulled(make):
    """kill -9 of everything after a checkpoint was acknowledged."""
    a = make(sets=SETS)
    p = prose(4000, 70000)
    f = cached(a, p)
    a.ctl('checkpoint')
    a.kill_all()
    a.start()
    r = cached(a, p)
    assert r['content'] == f['content'] and r['timings']['cache_n'] >= r['tokens_evaluated'] - 256


def test_the_file_that_is_used_is_the_one_that_was_checked(tmp_path):
    """Between the gate and the engine another file takes the path: not that one is loaded, but what the next gate has seen; and the
    gateway, which has read the old one, starts anew beside it."""
    path, other = str(tmp_path / 'm.gguf'), str(tmp_path / 'other.gguf')
    shutil.copy(MODEL, path)
    shutil.copy(os.path.join(TOP, 'models', 'lapis-hybrid-q8_0.gguf'), other)
    sets = dict(SETS, **{'engine.program': program('vitriol-engine-fake'), 'engine.device': 'cpu',
                         'engine.args': 'swap=%s=%s' % (other, path), 'supervisor.backoff_max_ms': 100})
    with Appliance(model=path, sets=sets) as a:
        assert 'm.gguf is not the file any more that was checked before this start' in a.log_text()
        assert 'm.gguf is another file than gateway has read: it starts anew' in a.log_text()
        gens = {c['name']: c['gen'] for c in a.ctl_json('status')['children']}
        assert gens['engine0'] == 2 and gens['gateway'] == 2, gens
        assert ' bytes=%d ' % os.path.getsize(path) in a.ctl('fingerprint')[1] and not os.path.exists(other)
        assert a.text(short(1), 8)


def test_state_is_not_taken_over_by_another_model(make):
    """The checkpoint of one file is not found by another; the text is that model's own."""
    a = make(sets=SETS)
    p = prose(4000, 50000)
    cached(a, p)
    a.ctl('checkpoint')
    assert a.stop() == 0
    b = make(sets=SETS, state_dir=a.state_dir, model=os.path.join(TOP, 'models', 'lapis-hybrid-q8_0.gguf'))
    assert cached(b, p)['timings']['cache_n'] == 0


def test_state_dir_is_locked(make):
    """Two appliances cannot share one database."""
    a = make(sets=SETS)
    b = make(sets=SETS, state_dir=a.state_dir, wait=False)
    p = prose(3000, 5000)
    f = cached(a, p)
    a.ctl('checkpoint')
    a.next_generation('engine0', a.kill('engine0'))
    r = cached(a, p)
    assert r['content'] == f['content'] and r['timings']['cache_n'] >= r['tokens_evaluated'] - 256
    assert b.proc.wait(60) == 69 and 'in use by another vitriold (pid %d' % a.pid in b.log_text()


def test_fingerprint_line(make):
    """Once a launch, with the difference to the launch before."""
    import re
    a = make(sets=SETS)
    lines = re.findall(r'VITRIOL-FINGERPRINT: v=1 (.*)', a.log_text())
    assert len(lines) == 1 and 'child=engine0' in lines[0] and 'gen=1' in lines[0] and len(lines[0]) <= 2048
    assert a.stop() == 0
    a.sets['engine.slots'] = 2
    a.start()
    line = re.findall(r'VITRIOL-FINGERPRINT: v=1 (.*)', a.log_text())[-1]
    diff = re.search(r'\bdiff=(\S+)', line).group(1)
    assert 'slots:4>2' in diff, line
    assert a.ctl('fingerprint')[1].strip()
