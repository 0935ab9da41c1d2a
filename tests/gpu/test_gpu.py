"""The appliance on a real GPU: what the other suites prove on the CPU, once more where a device can fail, too."""
import os

import pytest

from harness import gpu
from harness.appliance import MODEL, Appliance, program
from harness.stream import check_transcript
from harness.text import prose, short

if not any(os.path.exists(p) for p in ('/dev/nvidiactl', '/dev/dxg')):
    pytest.skip('there is no NVIDIA GPU on this machine', allow_module_level=True)

SETS = {'engine.device': 'gpu:0', 'engine.ctx_tokens': 4096, 'engine.slots': 4, 'engine.hang_budget_s': 5,
        'supervisor.backoff_max_ms': 300}
N = 400  # tokens: long enough that a fault comes before the end


def start(**sets):
    return Appliance(sets=dict(SETS, **sets), model=os.environ.get('VTEST_GPU_MODEL', MODEL))


def restarts(app, why):
    return app.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': why})


@pytest.fixture(scope='module')
def app():
    with start() as a:
        yield a


def test_it_computes_on_the_gpu(app):
    line = app.ctl_json('fingerprint')['current'][0]['map']
    assert line['engine.device'] == 'gpu:0' and line['engine.simd'] == 'cuda'
    assert 'vault0' in app.children()


@pytest.mark.parametrize('at', [1, 5, 30, 80])
def test_killed_at_a_token(app, at):
    app.wait_ready()
    want = app.text(short(at), N, ignore_eos=True)
    s = app.stream(short(at), N, ignore_eos=True, stream_options={'include_usage': True})
    s.run(until_events=at)
    seen = s.text
    app.kill('engine0')
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.usage['completion_tokens'] == N
    assert want.startswith(seen) and s.text.startswith(seen)
    assert gpu.loads(app)[-1].kept


def test_long_prompts_are_taken_over(app):
    app.wait_ready()
    s = app.stream(prose(9000), N, ignore_eos=True)
    s.run(until_events=5)
    app.kill('engine0')
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    last = gpu.loads(app)[-1]
    assert last.kept and last.pages >= 5 and last.spoilt == 0


def test_bounce(app):
    app.wait_ready()
    s = app.stream(short(3), N, ignore_eos=True)
    s.run(until_events=5)
    app.ctl('bounce', 'engine0', '--wait', timeout=120)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert gpu.loads(app)[-1].kept


@pytest.mark.parametrize('fault,why', [('lost', 'device_lost'), ('spin', 'hung')])
def test_the_device_fails(tmp_path, fault, why):
    with start(**gpu.fault(tmp_path, fault, 60), **{'engine.program': program('vitriol-engine-fault')}) as a:
        s = a.stream(prose(9000), N, ignore_eos=True).run()
        assert check_transcript(s, ('normal',)) == 'normal'
        assert restarts(a, why) == 1
        last = gpu.loads(a)[-1]
        assert last.kept and last.pages >= 5 and last.spoilt == 0
        assert a.text(short(1), 20) != ''


def test_checkpoint_and_restore():
    """The power fails: what was saved is there again, from the store alone."""
    with start() as a:
        want = a.text(prose(9000), 20)
        gpu.wait_for('the save', lambda: a.metric('vitriol_store_commits_total', absent=0) >= 1, 30)
        a.kill_all()
        a.start()
        before = a.metric('llamacpp:prompt_tokens_cached_total', absent=0)
        assert a.text(prose(9000), 20) == want
        # the count comes with the next telemetry, after the answer
        gpu.wait_for('cached tokens', lambda: a.metric('llamacpp:prompt_tokens_cached_total') - before >= 5 * 256, 10)
        assert not gpu.loads(a)[-1].kept


def test_without_a_vault():
    with start(**{'engine.vault': 'off'}) as a:
        assert 'vault0' not in a.children()
        s = a.stream(short(3), N, ignore_eos=True)
        s.run(until_events=5)
        a.kill('engine0')
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal'
        assert not gpu.loads(a)[-1].kept and not gpu.loads(a)[-1].held


def test_a_vault_that_dies(app):
    app.wait_ready()
    told = app.log_text().count('a new vault holds')
    app.kill('vault0')
    gpu.wait_for('the next vault has everything', lambda: app.log_text().count('a new vault holds') > told)
    app.next_generation('engine0', app.kill('engine0'))
    assert gpu.loads(app)[-1].kept
