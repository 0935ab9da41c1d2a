"""Everything about a GPU but its arithmetic, where there is none: the engine computes on a fake one, with weights and pages that a vault
holds and faults that are ordered."""
import json
import os
import re

import pytest

from harness import gpu, stream
from harness.appliance import Appliance, program
from harness.stream import check_transcript
from harness.text import prose, short

SETS = {'engine.device': 'gpu:0', 'engine.ctx_tokens': 2048, 'engine.slots': 2, 'engine.vault': 'on',
        'supervisor.backoff_max_ms': 200, 'supervisor.probe_program': program('vitriol-probe-fake')}


def fake(tmp_path, fault=None, at=40, **sets):
    """An appliance on the fake GPU, the first generation of which has that fault in its at-th step."""
    hang = 6 if fault == 'spin' else 60  # a step of a real model takes seconds on a machine that is busy with other tests
    return Appliance(sets=dict(SETS, **{'engine.program': program('vitriol-engine-fake'), 'engine.hang_budget_s': hang},
                               **gpu.fault(tmp_path, fault, at), **sets))


class World:
    """What befalls the fake device whoever uses it (fake_gpu.c)."""

    def __init__(self, app):
        self.path = app.run_dir + '.gpu'

    def is_(self, *lines):
        """From now on."""
        with open(self.path + '.new', 'w') as f:
            f.write(''.join(ln + '\n' for ln in lines))
        os.rename(self.path + '.new', self.path)


def status_of(app):
    """Whatever it says, ready or not."""
    text = app.ctl('--json', 'status', check=False)[1]
    return dict({'state': '', 'device': '', 'device_lost': 0, 'children': []}, **json.loads(text or '{}'))  # an error, too


def test_same_text_as_the_cpu(tmp_path):
    with fake(tmp_path) as a, Appliance(sets={'engine.device': 'cpu'}) as cpu:
        assert a.text(short(1), 40) == cpu.text(short(1), 40)
        line = a.ctl_json('fingerprint')['current'][0]['map']
        assert line['engine.device'] == 'gpu:0' and line['engine.simd'] == 'fake'


@pytest.mark.parametrize('fault', ['lost', 'spin'])
def test_takeover_after(tmp_path, fault):
    with fake(tmp_path, fault, 30) as a:
        s = a.stream(prose(2400), 60, ignore_eos=True).run()
        assert check_transcript(s, ('normal',)) == 'normal'
        assert s.text == a.text(prose(2400), 60, ignore_eos=True)
        first, second = gpu.loads(a)
        assert not first.kept and second.kept and second.pages >= 2 and second.spoilt == 0
        reason = 'device_lost' if fault == 'lost' else 'hung'
        assert a.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': reason}) == 1
        assert ('device_proved: gpu:0' in a.log_text()) == (fault == 'lost') and a.metric('vitriol_device_lost') == 0


def test_memory_that_runs_out_ends_the_process(tmp_path):
    """Exit code 82; the vault lets go of everything, for that may be what is missing."""
    with fake(tmp_path, 'full', 3, **{'engine.ctx_tokens': 4096, 'engine.slots': 1}) as a:
        s = a.stream(prose(9000), 8, ignore_eos=True).run()
        assert check_transcript(s, ('normal',)) == 'normal'
        assert len(gpu.loads(a)) == 2 and not gpu.loads(a)[1].kept
        assert a.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': 'device_oom_run'}) == 1


def test_a_model_that_does_not_fit_is_refused_with_the_sum(tmp_path):
    a = fake(tmp_path, **{'engine.ctx_tokens': 131072, 'engine.slots': 8})
    try:
        a.start(wait=False)
        gpu.wait_for('the refusal', lambda: 'gpu:0 refused: ' in a.log_text(), 30)
        text = re.search(r'gpu:0 refused: (.*?) = (\d+) MiB, available', a.log_text())
        terms = [int(n) for n in re.findall(r'(\d+) MiB', text.group(1))]
        assert len(terms) == 5 and abs(sum(terms) - int(text.group(2))) <= 3
        assert 'engine0 generation 1' not in a.log_text()  # it was not even started
        gpu.wait_for('its class', lambda: 'device_oom_load' in a.ctl('status', check=False)[1] + a.log_text(), 10)
    finally:
        a.destroy()


def test_spoilt_weights_are_uploaded_again(tmp_path):
    with fake(tmp_path) as a:
        want = a.text(short(2), 30)
        sizes = sorted((os.stat(f).st_size, f) for f in gpu.memory_of(a.child('vault0')))
        for size, path in sizes[-2:]:  # weights and pages, whichever is which
            with open(path, 'r+b') as f:
                f.seek(size // 2)
                f.write(b'spoilt!!')
        a.next_generation('engine0', a.kill('engine0'))
        assert not gpu.loads(a)[-1].kept
        assert a.text(short(2), 30) == want


def test_a_changed_plan_finds_the_room_of_the_old_one(tmp_path):
    """The old pages and the new ones do not fit side by side: the vault lets go of the old ones first."""
    for name, ctx in (('wide', 40960), ('narrow', 32768)):
        (tmp_path / (name + '.conf')).write_text('[engine]\nctx_tokens = %d\n' % ctx)
    sets = dict(SETS, **{'engine.program': program('vitriol-engine-fake'), 'engine.device': 'auto', 'paths.profiles_dir': tmp_path})
    del sets['engine.ctx_tokens']
    with Appliance(sets=sets) as a:
        for name in ('wide', 'narrow', 'wide'):
            a.ctl('apply', name, '--wait')
            assert a.ctl_json('status')['profile'] == name
            assert a.ctl_json('fingerprint')['current'][0]['map']['engine.simd'] == 'fake', a.log_text()
        assert 'the model runs on the CPU' not in a.log_text() and gpu.loads(a)[-1].kept


def test_a_plan_that_does_not_fit_is_refused_before_the_stop(tmp_path):
    """With its sum, while a stream runs. What the running engine has counts as free: side by side wide and narrow would not fit."""
    shapes = {'wide': (0, 2, 40960), 'narrow': (0, 2, 32768), 'huge': (0, 8, 131072), 'absent': (3, 2, 2048)}
    for name, shape in shapes.items():
        (tmp_path / (name + '.conf')).write_text('[engine]\ndevice = gpu:%d\nslots = %d\nctx_tokens = %d\n' % shape)
    sets = dict(SETS, **{'engine.program': program('vitriol-engine-fake'), 'paths.profiles_dir': tmp_path, 'profile.name': 'wide'})
    for key in ('engine.ctx_tokens', 'engine.slots', 'engine.device'):
        del sets[key]
    with Appliance(sets=sets) as a:
        engine, loads = a.child('engine0'), len(gpu.loads(a))
        s = a.stream(prose(2400), 200, ignore_eos=True)
        s.run(until_events=3)
        rc, out = a.ctl('apply', 'huge', '--wait', check=False)
        said = out + a.ctl_err
        assert rc == 82 and 'gpu:0 refused: weights ' in said, (rc, said)
        terms = [int(n) for n in re.findall(r'(\d+) MiB', said.split(', available')[0])]
        assert len(terms) == 6 and abs(sum(terms[:-1]) - terms[-1]) <= 3, said
        rc, out = a.ctl('apply', 'absent', '--wait', check=False)
        assert rc == 78 and 'gpu:3' in out + a.ctl_err, (rc, out + a.ctl_err)
        assert a.child('engine0') == engine and len(gpu.loads(a)) == loads
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal' and a.child('engine0') == engine
        a.ctl('apply', 'narrow', '--wait')
        assert a.ctl_json('status')['window'] == 32768


def test_a_lost_gpu_is_not_used_before_it_is_proved(tmp_path):
    """Neither is the CPU, although "auto" would have taken it at the first start."""
    with fake(tmp_path, **{'engine.device': 'auto', 'supervisor.probe_retry_ms': 200}) as a:
        want, world = a.text(short(3), 20), World(a)
        world.is_('wrong')  # its memory is there, and its sums are not right: only a proof finds that
        a.kill('engine0')
        gpu.wait_for('the next generation, since only what has failed is proved', lambda: status_of(a)['state'] == 'ready'
                     and len(gpu.loads(a)) == 2, 20)
        world.is_('none')
        a.kill('engine0')
        status = gpu.wait_for('the loss', lambda: (lambda s: s['device_lost'] and s['state'] == 'failed' and s)(status_of(a)), 10)
        assert 'no GPU can be used' in status['device']
        assert stream.get(a.port, '/health').status == 503 and a.metric('vitriol_device_lost') == 1
        for state in ('lost', 'wrong'):
            world.is_(state)
            gpu.wait_for('a proof that fails', lambda: {'lost': 'fallen off the bus', 'wrong': 'computes wrongly'}[state]
                         in status_of(a)['device'], 10)
        assert len(gpu.loads(a)) == 2
        world.is_()
        a.wait_ready()
        assert 'device_proved: gpu:0' in a.log_text() and a.metric('vitriol_device_lost') == 0
        assert a.text(short(3), 20) == want
        line = a.ctl_json('fingerprint')['current'][0]['map']
        assert line['engine.device'] == 'gpu:0' and line['engine.simd'] == 'fake'


def test_the_next_engine_waits_for_the_memory(tmp_path):
    with fake(tmp_path, **{'engine.vram_return_s': 2}) as a:
        want, world = a.text(short(4), 20), World(a)
        world.is_('taken 200')
        a.kill('engine0')
        gpu.wait_for('the wait', lambda: 'waits until the memory of gpu:0 is back' in status_of(a)['device'], 10)
        world.is_('taken 550')
        gpu.wait_for('the refusal', lambda: 'vram_not_returned: ' in a.log_text(), 10)
        assert len(gpu.loads(a)) == 1
        world.is_()
        a.wait_ready()
        assert a.text(short(4), 20) == want and gpu.loads(a)[1].kept


def test_a_gpu_that_is_named_and_missing_is_no_cpu(tmp_path):
    a = fake(tmp_path)
    try:
        World(a).is_('none')
        a.start(wait=False)
        gpu.wait_for('the end', lambda: status_of(a)['state'] == 'failed', 20)
        engine = [c for c in status_of(a)['children'] if c['name'] == 'engine0'][0]
        assert engine['class'] == 'config' and 'no GPU can be used' in a.log_text() and not gpu.loads(a)
    finally:
        a.destroy()
