"""vitriolctl store: list, verify and forget, their exit codes, and a store that is down, frozen or damaged."""
import json
import os
import re
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.appliance import Appliance, wait_for
from harness.stream import post
from harness.text import prose


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 2048, 'engine.slots': 2}) as a:
        yield a


def talk(app, slot=0, start=0, name=None):
    body = post(app.port, '/completion', {'prompt': prose(3000, start), 'n_predict': 8, 'temperature': 0, 'id_slot': slot})
    assert body.status == 200, body.json()
    if name:
        r = post(app.port, '/slots/%d?action=save' % slot, {'filename': name})
        assert r.status == 200, r.json()
    app.ctl('checkpoint')


def store(app, *args):
    """Exit code, standard output, standard error, seconds."""
    began = time.monotonic()
    rc, out = app.ctl(*args, check=False)
    return rc, out, app.ctl_err, time.monotonic() - began


def test_list(app):
    talk(app, 0, 0, 'mine.bin')
    rows = app.ctl_json('store', 'list')
    assert [sorted(r) for r in rows] == [['created_us', 'file', 'restorable', 'slot', 'tenant', 'tokens']] * len(rows)
    by_file = {r['file']: r for r in rows}
    assert by_file['mine.bin']['tenant'] == 'default' and by_file['']['slot'] == 0
    for r in rows:
        assert r['restorable'] == r['tokens'] // 256 * 256 > 0
        assert abs(r['created_us'] / 1e6 - time.time()) < 60
    # An order to save keeps every id, those behind the last block, too.
    assert by_file['']['tokens'] == by_file['mine.bin']['tokens'] and by_file['']['tokens'] % 256
    text = app.ctl('store', 'list')[1].splitlines()
    assert text[0].split()[:4] == ['tenant', 'slot', 'tokens', 'restorable'] and len(text) == 1 + len(rows)
    assert re.search(r'^default +- .*mine\.bin$', '\n'.join(text), re.M)
    assert app.ctl_json('store', 'list', '--tenant', 'default') == rows
    assert app.ctl_json('store', 'list', '--tenant', 'nobody') == []
    assert app.ctl('store', 'list', '--tenant', 'nobody')[1] == 'no checkpoints\n'


def test_verify(app):
    talk(app)
    counts = app.ctl_json('store', 'verify')
    assert counts['bad'] == 0 and counts['blocks'] >= 3 and counts['bytes'] > 1 << 20
    assert re.fullmatch(r'\d+ blocks, .* read: 0 damaged\n', app.ctl('store', 'verify')[1])


@pytest.mark.parametrize('args,rc,says', [
    ([], 64, 'list, verify or forget'),
    (['lst'], 64, 'did you mean list'),
    (['list', 'now'], 64, 'options only'),
    (['list', '--slot', '1'], 64, '--slot goes with store forget'),
    (['verify', '--tenant', 'x'], 64, 'takes no --tenant'),
    (['forget'], 64, 'needs --tenant'),
    (['forget', '--tenant'], 64, 'needs a value'),
    (['forget', '--tenant='], 64, 'needs --tenant'),
    (['forget', '--tenant', '../x'], 64, 'A-Z a-z 0-9'),
    (['forget', '--tenant', 'x' * 3000], 64, 'A-Z a-z 0-9'),
    (['forget', '--tenant', 'default', '--slot', 'x'], 64, 'number of a slot'),
    (['forget', '--tenant', 'default', '--slot', '-1'], 64, 'number of a slot'),
    (['forget', '--tenant', 'default', '--slot', '70000'], 64, 'no slot 70000'),
    (['forget', '--tenant', 'nobody'], 66, 'nothing of tenant nobody'),
    (['forget', '--tenant', 'default', '--slot', '1'], 66, 'slot 1 was stored'),
])
def test_bad_input(app, args, rc, says):
    got, out, err, _ = store(app, 'store', *args)
    assert got == rc and says in err and out == '', (got, out, err)
    got, out, err, _ = store(app, '--json', 'store', *args)
    body = json.loads(out)
    assert got == rc and (rc == 66 or body['error']['exit'] == rc), body


def test_a_script_in_a_hurry(app):
    """vitriold counts calls by the second; who calls too often waits and is not failed."""
    with ThreadPoolExecutor(8) as many:
        codes = list(many.map(lambda _: store(app, 'status')[0], range(160)))
    assert codes == [0] * 160


def test_forget(app):
    talk(app, 0, 9000, 'gone.bin')
    with open(os.path.join(app.state_dir, 'store.db'), 'rb') as f:
        assert b'gone.bin' in f.read()
    for slot in range(2):
        assert post(app.port, '/slots/%d?action=erase' % slot, {}).status == 200
    gone = app.ctl_json('store', 'forget', '--tenant', 'default')
    assert gone['checkpoints'] >= 2 and gone['blocks'] >= 3 and gone['bytes'] > 1 << 20
    assert app.ctl_json('store', 'list') == []
    for folder, _, names in os.walk(app.state_dir):
        for name in names:
            with open(os.path.join(folder, name), 'rb') as f:
                assert b'gone.bin' not in f.read(), name
    r = post(app.port, '/slots/0?action=restore', {'filename': 'gone.bin'})
    r.read()
    assert r.status == 400
    talk(app, 0, 9000)  # and it goes on, with another salt
    wait_for('a new checkpoint', lambda: app.ctl_json('store', 'list'), 10)


def test_frozen_and_down(app):
    pid = app.child('store')
    os.kill(pid, signal.SIGSTOP)
    try:
        rc, out, err, took = store(app, 'store', 'list', '--timeout', '1')
        assert rc == 75 and took < 9, (rc, err, took)
        rc, out, err, took = store(app, '--json', 'store', 'list')
        assert rc == 75 and took < 60 and json.loads(out)['error']['exit'] == 75, (rc, out, err, took)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for('it speaks again', lambda: store(app, 'store', 'list')[0] == 0, 10)
    app.ctl('stop', 'store', '--wait')
    for args in (['list'], ['verify'], ['forget', '--tenant', 'default']):
        rc, out, err, took = store(app, 'store', *args)
        assert rc == 69 and 'store is down' in err and took < 9, (args, rc, err, took)
    app.ctl('start', 'store', '--wait')
    wait_for('it is back', lambda: store(app, 'store', 'list')[0] == 0, 10)


def test_damage_is_found(make):
    a = make(sets={'engine.ctx_tokens': 2048, 'engine.slots': 1, 'store.restore_budget_s': 0})
    talk(a)
    a.stop()
    db = sqlite3.connect(os.path.join(a.state_dir, 'store.db'))
    (size,) = db.execute('SELECT length(data) FROM payload ORDER BY block_id LIMIT 1').fetchone()
    (page,) = db.execute('PRAGMA page_size').fetchone()
    data = db.execute('SELECT data FROM payload ORDER BY block_id LIMIT 1').fetchone()[0]
    db.close()
    assert size > 4 * page
    with open(os.path.join(a.state_dir, 'store.db'), 'r+b') as f:
        whole = f.read()
        at = whole.index(data[2 * page:2 * page + 64])
        f.seek(at)
        f.write(bytes([whole[at] ^ 1]))
    a.start()
    rc, out, err, _ = store(a, 'store', 'verify')
    assert rc == 65 and ': 1 damaged' in out, (rc, out, err)
    rc, out, err, _ = store(a, 'store', 'verify')
    assert rc == 0, (out, err)  # it is out of every checkpoint now
    a.stop()
