"""Slot files: save, erase, restore, across restarts; a restore is a promise of reuse."""
import pytest

from harness.appliance import Appliance
from harness.stream import check_error, post
from harness.text import prose

PROMPT = prose(5000, 30000)


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 2048, 'engine.slots': 4}) as a:
        yield a


def ask(app, slot, prompt=PROMPT, n=8):
    return post(app.port, '/completion', {'prompt': prompt, 'n_predict': n, 'temperature': 0, 'id_slot': slot}).json()


def action(app, slot, what, name=None):
    r = post(app.port, '/slots/%d?action=%s' % (slot, what), {'filename': name} if name else {})
    body = r.json()
    assert r.status == 200, body
    return body


def test_save_erase_restore(app):
    first = ask(app, 1)
    saved = action(app, 1, 'save', 'one.bin')
    assert saved['id_slot'] == 1 and saved['n_saved'] >= first['tokens_evaluated'] and saved['n_written'] > 0
    erased = action(app, 1, 'erase')
    assert erased['n_erased'] >= first['tokens_evaluated']
    assert ask(app, 1, 'Something else. ' * 80)['timings']['cache_n'] == 0
    restored = action(app, 1, 'restore', 'one.bin')
    assert restored['n_restored'] == saved['n_saved'] and restored['n_read'] > 0
    again = ask(app, 1)
    assert again['timings']['cache_n'] >= again['tokens_evaluated'] - 256, again['timings']
    assert again['content'] == first['content']


@pytest.mark.parametrize('chars', [40, 300, 700])
def test_less_than_a_block(app, chars):
    """There is no whole block to be stored: the ids are kept, and the restore evaluates them."""
    first = ask(app, 1, prose(chars, 900))
    assert first['tokens_evaluated'] < 250
    saved = action(app, 1, 'save', 'short-%d' % chars)
    assert saved['n_saved'] >= first['tokens_evaluated'] and saved['n_written'] > 0
    app.next_generation('engine0', app.kill('engine0'))
    for s in range(4):
        action(app, s, 'erase')
    restored = action(app, 2, 'restore', 'short-%d' % chars)
    assert restored['n_restored'] == saved['n_saved'] and restored['n_read'] > 0
    longer = ask(app, 2, prose(chars, 900) + first['content'] + ' And then', 4)
    assert longer['timings']['cache_n'] >= saved['n_saved'] - 4, (longer['timings'], saved)


def test_restore_in_a_fresh_process(app):
    first = ask(app, 2)
    saved = action(app, 2, 'save', 'two.bin')
    for s in range(4):
        action(app, s, 'erase')
    app.next_generation('engine0', app.kill('engine0'))
    for s in range(4):
        action(app, s, 'erase')
    restored = action(app, 2, 'restore', 'two.bin')
    assert restored['n_restored'] == saved['n_saved']
    again = ask(app, 2)
    assert again['timings']['cache_n'] >= again['tokens_evaluated'] - 256 and again['content'] == first['content']


def test_long_names_differ(app):
    """The last of 255 bytes counts."""
    ask(app, 1, prose(300))
    one, two = action(app, 1, 'save', 'n' * 254 + '1'), 'n' * 254 + '2'
    assert one['filename'] == 'n' * 254 + '1'
    r = post(app.port, '/slots/1?action=restore', {'filename': two})
    r.read()
    assert r.status == 400
    assert action(app, 1, 'restore', one['filename'])['n_restored'] == one['n_saved']


def test_unknown_name(app):
    r = post(app.port, '/slots/0?action=restore', {'filename': 'never-saved.bin'})
    r.read()
    assert r.status == 400
    check_error(400, r.headers, r.raw)


def test_missing_name(app):
    r = post(app.port, '/slots/0?action=save', {})
    r.read()
    assert r.status == 400
    check_error(400, r.headers, r.raw)


def test_file_of_another_configuration_is_not_restored(app, make):
    """A name saved under one model file is nothing under another quantisation of it."""
    import os
    from harness.appliance import TOP
    ask(app, 3)
    action(app, 3, 'save', 'q4.bin')
    app.stop()
    b = make(root=None, state_dir=app.state_dir, model=os.path.join(TOP, 'models', 'lapis-hybrid-q8_0.gguf'),
             sets={'engine.ctx_tokens': 2048, 'engine.slots': 4})
    r = post(b.port, '/slots/3?action=restore', {'filename': 'q4.bin'})
    r.read()
    assert r.status == 400
    assert ask(b, 3)['timings']['cache_n'] == 0
    b.stop()
    app.start()
