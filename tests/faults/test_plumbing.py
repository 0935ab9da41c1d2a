"""Fault cases of sockets and storage: V16, V19, strangers on internal sockets."""
import os
import random
import shutil
import signal
import socket
import sqlite3
import time

from harness.appliance import wait_for
from harness.stream import post
from harness.text import prose, short

SETS = {'engine.ctx_tokens': 2048, 'engine.slots': 2}


def poke(path, what=b''):
    """Connects and leaves, which the packaged NNG alone does not survive."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(2)
    s.connect(path)
    if what:
        s.sendall(what)
    s.close()


def descriptors(pid):
    return len(os.listdir('/proc/%d/fd' % pid))


def test_v19_knocks_deafen_nobody(make):
    """A stopped process accepts only what has left already: the worst moment for every knock."""
    a = make(engine='stub', stub_args='rate=50', sets=SETS)
    s = a.stream('Hello', 700, seed=1)
    s.run(until_events=3)
    before = descriptors(a.pid)
    for _ in range(5):
        os.kill(a.pid, signal.SIGSTOP)
        try:
            for name in ('ctl', 'tele') * 3:
                poke(os.path.join(a.run_dir, name))
        finally:
            os.kill(a.pid, signal.SIGCONT)
        a.ctl_json('status')
    s.run()
    assert s.end == 'complete'
    st = a.ctl_json('status')
    assert (st['ctl_relistens'], st['tele_relistens']) == (0, 0)
    wait_for('no descriptor is left behind', lambda: descriptors(a.pid) <= before, 14, 0.3)


def test_garbage_on_ctl(make):
    a = make(engine='stub', sets=SETS)
    rnd = random.Random(3)
    for _ in range(30):
        poke(os.path.join(a.run_dir, 'ctl'), rnd.randbytes(rnd.randrange(1, 200)))
    wait_for('ctl answers', lambda: a.ctl('status', check=False, timeout=20)[0] == 0, 20, 0.3)
    assert a.completion('x', 2, seed=1)


def test_modes_of_the_run_directory(make):
    a = make(engine='stub', sets=SETS)
    assert os.stat(os.path.join(a.run_dir, 'int')).st_mode & 0o777 == 0o700
    for name in ('ctl', 'tele'):
        assert os.stat(os.path.join(a.run_dir, name)).st_mode & 0o777 == 0o660
    for name in os.listdir(os.path.join(a.run_dir, 'int')):
        assert os.stat(os.path.join(a.run_dir, 'int', name)).st_mode & 0o077 == 0, name


def test_no_names_are_left_over(make):
    """After many generations the run directory holds no more than at the start."""
    a = make(engine='stub', sets=SETS)
    before = len(os.listdir(os.path.join(a.run_dir, 'int')))
    for _ in range(4):
        old = a.kill('engine0')
        wait_for('seen', lambda: a.children().get('engine0') != old, 5)
        a.ctl('reset', 'engine0', check=False)
        a.wait_ready()
    wait_for('old names go', lambda: len(os.listdir(os.path.join(a.run_dir, 'int'))) <= before + 1, 10)


def test_v16_bit_flips_in_the_database(make):
    """One random bit anywhere in the database: detected or without effect; the text is always the right one."""
    a = make(sets=SETS)
    prompt = prose(5000, 12000)
    want = post(a.port, '/completion', {'prompt': prompt, 'n_predict': 12, 'temperature': 0}).json()
    other = a.text(short(4), 16)
    a.ctl('checkpoint')
    assert a.stop() == 0
    keep = a.state_dir + '.keep'
    shutil.copytree(a.state_dir, keep)
    db = next(os.path.join(r, f) for r, _, fs in os.walk(keep) for f in fs if f.endswith('.db'))
    rel, size, rnd = os.path.relpath(db, keep), os.path.getsize(db), random.Random(16)
    shorter = 0
    for i in range(12):
        shutil.rmtree(a.state_dir)
        shutil.copytree(keep, a.state_dir)
        with open(os.path.join(a.state_dir, rel), 'r+b') as f:
            at = rnd.randrange(size) if i else 20  # the first in the header
            f.seek(at)
            b = f.read(1)[0]
            f.seek(at)
            f.write(bytes([b ^ (1 << rnd.randrange(8))]))
        a.start()
        got = post(a.port, '/completion', {'prompt': prompt, 'n_predict': 12, 'temperature': 0}).json()
        assert got['content'] == want['content'], 'flip at byte %d of %d' % (at, size)
        assert a.text(short(4), 16) == other
        shorter += got['timings']['cache_n'] < got['tokens_evaluated'] - 256
        assert a.stop() == 0
    shutil.rmtree(keep)
    print('\n%d of 12 flips shortened what was restored' % shorter)


def test_v16_every_block(make):
    """One flipped bit in each stored block in turn: the prefix before it is reused, the text is right, the row is marked."""
    a = make(sets=SETS)
    prompt = prose(6500, 33000)
    want = post(a.port, '/completion', {'prompt': prompt, 'n_predict': 12, 'temperature': 0}).json()
    a.ctl('checkpoint')
    assert a.stop() == 0
    keep = a.state_dir + '.keep'
    shutil.copytree(a.state_dir, keep)
    rel = next(os.path.relpath(os.path.join(r, f), keep) for r, _, fs in os.walk(keep) for f in fs if f.endswith('.db'))
    table, column, rows = _payloads(os.path.join(keep, rel))
    assert len(rows) >= 5
    for rowid in rows:
        shutil.rmtree(a.state_dir)
        shutil.copytree(keep, a.state_dir)
        _flip_payload(os.path.join(a.state_dir, rel), table, column, rowid)
        a.start()
        got = post(a.port, '/completion', {'prompt': prompt, 'n_predict': 12, 'temperature': 0}).json()
        assert got['content'] == want['content'], rowid
        assert a.stop() == 0
    shutil.rmtree(keep)


def _payloads(db):
    """The table and column that hold block payloads (the widest BLOB column), and its row ids."""
    con = sqlite3.connect(db)
    best = None
    for (table,) in con.execute("select name from sqlite_master where type='table'").fetchall():
        for col in con.execute('pragma table_info("%s")' % table).fetchall():
            try:
                size = con.execute('select sum(length("%s")) from "%s" where typeof("%s")=\'blob\'' % (col[1], table, col[1])).fetchone()[0]
            except sqlite3.Error:
                continue
            if size and (best is None or size > best[0]):
                best = (size, table, col[1])
    rows = [r[0] for r in con.execute('select rowid from "%s" where "%s" is not null' % (best[1], best[2])).fetchall()]
    con.close()
    return best[1], best[2], rows


def _flip_payload(db, table, column, rowid):
    """Flips one bit of a stored payload in the file itself, past triggers and checks."""
    con = sqlite3.connect(db)
    blob = con.execute('select "%s" from "%s" where rowid=?' % (column, table), (rowid,)).fetchone()[0]
    con.close()
    with open(db, 'rb') as f:
        data = f.read()
    at = data.find(blob[1000:1064])
    assert at >= 0, 'payload of row %d is not found in the file' % rowid
    with open(db, 'r+b') as f:
        f.seek(at + 7)
        b = data[at + 7]
        f.write(bytes([b ^ 0x10]))


def test_kills_of_the_store_during_saves(make):
    """kill -9 of the store while saves run: whatever was acknowledged restores, streams do not notice."""
    a = make(sets=SETS)
    rnd = random.Random(9)
    for i in range(12):
        prompt = prose(3000, 9000 * i)
        want = a.text(prompt, 6)
        wait_for('a checkpoint', lambda: a.ctl('checkpoint', check=False)[0] == 0, 20, 0.2)
        acked = prompt
        a.text(prose(5000, 9000 * i + 4000), 2)
        time.sleep(rnd.random() * 0.3)
        old = a.kill('store')
        a.kill('engine0')
        wait_for('both are back', lambda: a.children().get('store') not in (None, old), 10)
        a.ctl('reset', 'engine0', check=False)
        a.wait_ready()
        got = post(a.port, '/completion', {'prompt': acked, 'n_predict': 6, 'temperature': 0}).json()
        assert got['content'] == want
        a.ctl('reset', 'store', check=False)


def test_every_token_has_an_event_of_its_own(make):
    """Also when tokens come so fast that several cross the link together."""
    a = make(engine='stub', stub_args='rate=2000', sets={'engine.ctx_tokens': 2048})
    s = a.stream('How fast?', 400, ignore_eos=True)
    s.run()
    assert len(s.times) > 380 and s.finish == 'length'  # some ids are a part of a character only
