"""Models of other architectures than the embedded one, killed, saved and restored: layers that see a window, experts, experts in a
hybrid. Each gives the undisturbed text and reuses what it had."""
import os
import sys

import pytest

from harness.appliance import TOP, Appliance, wait_for
from harness.stream import check_transcript, post
from harness.text import prose

sys.path.insert(0, os.path.join(TOP, 'tests', 'engine'))
import reference

N = 60
PROMPT = prose(1400, 700)  # a token a byte: five pages and a part, the window is less than one


@pytest.fixture(scope='module', params=['gemma3', 'qwen3moe', 'qwen35moe'])
def app(tmp_path_factory, request):
    path = tmp_path_factory.mktemp('model') / 'm.gguf'
    arch, opts = reference.CASES[request.param]
    kv, w, _ = reference.build(arch, **dict(opts, win=100) if arch == 'gemma3' else opts)
    kv[arch + '.context_length'] = (reference.U32, 4096)
    reference.write(path, kv, w)
    with Appliance(model=str(path), sets={'engine.ctx_tokens': 2048, 'engine.slots': 2}) as a:
        a.recurrent = arch == 'qwen35moe'
        a.undisturbed = a.text(PROMPT, N, ignore_eos=True)
        yield a


@pytest.mark.parametrize('at', [1, 9, 30])
def test_killed_engine(app, at):
    app.wait_ready()
    s = app.stream(PROMPT, N, stream_options={'include_usage': True}, ignore_eos=True)
    s.run(until_events=at)
    old = app.kill('engine0')
    wait_for('vitriold has seen it', lambda: app.children().get('engine0') != old, 10)
    app.ctl('reset', 'engine0', check=False)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == app.undisturbed


def action(app, slot, what, name=None):
    r = post(app.port, '/slots/%d?action=%s' % (slot, what), {'filename': name} if name else {})
    assert r.status == 200, r.json()
    return r.json()


def ask(app):
    return post(app.port, '/completion', {'prompt': PROMPT, 'n_predict': N, 'temperature': 0, 'ignore_eos': True,
                                          'id_slot': 0}).json()


def test_save_and_restore_in_a_fresh_process(app):
    """Every whole block comes back, since what has to be known beside it is saved with it; the tail is evaluated."""
    app.wait_ready()
    first = ask(app)
    assert first['content'] == app.undisturbed
    saved = action(app, 0, 'save', 'slot.bin')
    app.next_generation('engine0', app.kill('engine0'))
    for slot in range(2):
        action(app, slot, 'erase')
    restored = action(app, 0, 'restore', 'slot.bin')
    assert restored['n_restored'] == saved['n_saved']
    again = ask(app)
    assert again['content'] == app.undisturbed
    # a recurrent state goes back to the last border of a block, the others leave off only the last token
    assert again['timings']['cache_n'] == (1280 if app.recurrent else again['tokens_evaluated'] - 1)
