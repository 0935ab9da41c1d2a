"""Memory that outlives its engine, on the CPU: KV pages are held by a vault, every client gets the undisturbed greedy text, and what
the vault cannot vouch for is computed again."""
import glob
import os
import re
import signal
import struct

import pytest

from harness.appliance import Appliance, wait_for
from harness.stream import check_transcript
from harness.text import prose

PROMPT = prose(2400)  # two pages of 256 tokens and a rest
N = 250  # more than an engine makes before a busy machine comes to kill it
SETS = {'engine.vault': 'on', 'engine.device': 'cpu', 'engine.ctx_tokens': 2048, 'engine.slots': 2,
        'supervisor.backoff_max_ms': 200, 'engine.hang_budget_s': 6}


@pytest.fixture
def app():
    with Appliance(sets=SETS) as a:
        yield a


def loads(app):
    """(pages kept, pages spoilt, held by a vault) of every load so far."""
    return [(int(k), int(s), v == 'a vault holds it') for k, s, v in
            re.findall(r'loaded: .*KV [\d.]+ ms \((\d+) pages kept, (\d+) spoilt\), (.*)', app.log_text())]


def interrupted(app, n, before=lambda: None, kill=('engine0',)):
    """A stream whose engine is killed after a few tokens, and what the next engine said of its load."""
    want = app.text(PROMPT, N, ignore_eos=True)
    s = app.stream(PROMPT, N, ignore_eos=True)
    s.run(until_events=5)
    assert s.end is None, 'the answer was over before the kill'
    before()
    app.kill(*kill)
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'
    assert s.text == want
    wait_for('the next engine tells of its load', lambda: len(loads(app)) > n)
    return loads(app)[n]


def test_pages_are_taken_over_without_the_store(app):
    """The store knows nothing of the last prompt: its pages come from the vault."""
    app.ctl('stop', 'store')
    pages, spoilt, held = interrupted(app, 1)
    assert pages >= 2 and spoilt == 0 and held
    before = app.metric('llamacpp:prompt_tokens_total')
    app.text(PROMPT, 4)
    evaluated = app.metric('llamacpp:prompt_tokens_total') - before
    assert evaluated < 2 * 256, 'the prompt was evaluated again'


def vault_memory(app):
    """Descriptors of shared memory in the vault, the largest first."""
    fds = glob.glob('/proc/%d/fd/*' % app.child('vault0'))
    return sorted((f for f in fds if 'memfd:vitriol' in os.readlink(f)), key=lambda f: -os.stat(f).st_size)


HEAD, ENTRY = struct.Struct('<4Q2I'), struct.Struct('<2Q2I32s')  # of kv/ledger.h


def newest_page(path):
    """Of those that are whole: its number, and the bytes of a page."""
    with open(path, 'rb') as f:
        data = f.read()
    _, _, page_bytes, _, n_pages, _ = HEAD.unpack_from(data)
    stamps = [ENTRY.unpack_from(data, HEAD.size + i * ENTRY.size)[0] for i in range(n_pages)]
    return stamps.index(max(stamps)), page_bytes


def test_a_spoilt_page_is_computed_again(app):
    def spoil():
        os.kill(app.child('engine0'), signal.SIGSTOP)
        memory, ledger = vault_memory(app)[:2]
        page, page_bytes = newest_page(ledger)
        with open(memory, 'r+b') as f:
            at = page * page_bytes + page_bytes // 2
            f.seek(at)
            f.write(bytes([os.pread(f.fileno(), 1, at)[0] ^ 0x40]))

    pages, spoilt, held = interrupted(app, 1, before=spoil)
    assert spoilt == 1 and pages >= 1 and held


def test_a_ledger_of_nonsense_is_no_ledger(app):
    def scribble():
        os.kill(app.child('engine0'), signal.SIGSTOP)
        for path in vault_memory(app)[1:]:
            with open(path, 'r+b') as f:
                size = os.stat(path).st_size
                f.seek(HEAD.size)
                f.write(b'\xff' * (size - HEAD.size))

    pages, spoilt, held = interrupted(app, 1, before=scribble)
    assert pages == 0 and spoilt > 0 and held


def test_the_vault_may_die_at_any_time(app):
    old = app.child('vault0')
    os.kill(old, signal.SIGKILL)
    new = wait_for('another vault', lambda: app.children().get('vault0') not in (None, old) and app.children()['vault0'])
    wait_for('the engine gives it its memory', lambda: 'a new vault holds' in app.log_text())
    pages, spoilt, held = interrupted(app, 1)
    assert pages >= 2 and spoilt == 0 and held
    assert app.child('vault0') == new


def test_engine_and_vault_together(app):
    """Nobody is left to hold anything: a clean load."""
    pages, _, _ = interrupted(app, 1, before=lambda: app.kill('vault0'))
    assert pages == 0


def test_a_hang_leaves_the_pages(app):
    """The engine stands still with work in flight: vitriold kills it, and what it had is there."""
    pages, spoilt, held = interrupted(app, 1, kill=('engine0', signal.SIGSTOP))
    assert pages >= 2 and spoilt == 0 and held


def test_without_a_vault():
    with Appliance(sets=dict(SETS, **{'engine.vault': 'off'})) as app:
        assert 'vault0' not in app.children()
        assert interrupted(app, 1) == (0, 0, False)
