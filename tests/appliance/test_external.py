"""External engines: a server with the OpenAI API behind the same gates, watched, restarted, relayed honestly."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from harness import stream
from harness.appliance import TOP, alive, free_port, wait_for
from harness.stream import check_transcript

SERVER = os.path.join(TOP, 'tests', 'harness', 'openai_server.py')
SETS = {'engine.kind': 'external', 'external.slots': 4, 'engine.hang_budget_s': 3, 'supervisor.backoff_max_ms': 100}


def command(*options):
    return ' '.join([sys.executable, SERVER, '{port}'] + list(options))


@pytest.fixture
def ext(make):
    def start(*options, sets=None, wait=True):
        return make(sets=dict(SETS, **{'external.command': command(*options), 'model.path': ''}, **(sets or {})), wait=wait)
    return start


def server_of(app):
    """The pid of the scripted server: the child of the engine."""
    parent = str(app.child('engine0'))

    def look():
        for p in os.listdir('/proc'):
            try:
                with open('/proc/%s/stat' % p) as f:
                    if f.read().rpartition(')')[2].split()[1] == parent:
                        return int(p)
            except (OSError, IndexError):
                pass
    return wait_for('the server runs', look)


def words(n):
    return ''.join('w%d ' % i for i in range(n))


def test_serves_and_says_what_it_is(ext):
    a = ext()
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 3, 'model': 'scripted-7b'})
    assert r.status == 200 and r.json()['choices'][0]['text'] == 'w0 w1 w2'
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'model': 'other'})
    assert r.status == 404 and r.json()['error']['message'] == 'no such model', 'the server\'s own errors pass as they are'
    for path in ('/v1/completions', '/v1/chat/completions'):
        s = a.stream('Hello', 30, path=path)
        s.run()
        assert check_transcript(s, ('normal',)) == 'normal'
        assert s.text == words(30)
    st = a.ctl_json('status')
    assert st['state'] == 'ready' and (st['slots'], st['window']) == (4, 4096)
    engine = next(c for c in st['children'] if c['name'] == 'engine0')
    assert engine['program'].endswith('vitriol-external') and engine['restarts'] == 0
    assert 'model=scripted-7b' in a.ctl('fingerprint')[1]
    assert stream.get(a.port, '/health').status == 200
    assert stream.get(a.port, '/v1/models').status == 200
    for method, want in (('HEAD', 200), ('POST', 404)):  # neither has a body to wait for
        c = http.client.HTTPConnection('127.0.0.1', a.port, timeout=60)
        c.request(method, '/v1/nothing')
        assert c.getresponse().status == want, method
        c.close()
    big = 'long ' * 700000  # more than one frame
    assert stream.post(a.port, '/v1/completions', {'prompt': big, 'max_tokens': 1}).status == 200
    old = server_of(a)
    assert a.stop() == 0
    wait_for('the server has ended, too', lambda: not alive(old))


def test_ready_means_that_it_decoded(ext, tmp_path):
    loaded = tmp_path / 'loaded'
    a = ext('load-until=%s' % loaded, wait=False)
    wait_for('the gateway answers', lambda: _status(a) is not None, 20)
    t0 = time.monotonic()
    codes = set()
    while time.monotonic() - t0 < 1.2:
        codes.add(_status(a))
        time.sleep(0.1)
    assert codes == {503}, 'healthy before it could decode: %s' % codes
    loaded.write_text('')
    a.wait_ready(20)


def _status(a):
    try:
        return stream.get(a.port, '/health', timeout=5).status
    except (OSError, stream.Cut):
        return None


def test_chat_only_servers_are_proved_by_chat(ext):
    a = ext('chat-only')
    s = a.stream('Hello', 5, path='/v1/chat/completions')
    s.run()
    assert check_transcript(s, ('normal',)) == 'normal'


@pytest.mark.parametrize('how', ['die-after=20', 'cut-after=20', 'no-done', 'kill'])
def test_a_stream_never_ends_silently(ext, tmp_path, how):
    once = tmp_path / 'once'
    once.write_text('')
    options = [] if how == 'kill' else [how, 'once=%s' % once]
    a = ext('rate=100', *options)
    s = a.stream('Hello', 60)
    if how == 'kill':
        s.run(until_events=10)
        os.kill(server_of(a), signal.SIGKILL)
    s.run()
    assert check_transcript(s, ('error',)) == 'error'
    assert words(60).startswith(s.text)
    a.wait_ready()
    assert stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 2}).status == 200
    if how == 'kill':
        c = a.metric('vitriol_child_restarts_total', {'child': 'engine0', 'class': 'sigkill_unknown'})
        assert c == 1
    if how == 'die-after=20':
        assert a.metric('vitriol_child_restarts_total', {'child': 'engine0'}) == 1


def test_not_begun_is_a_plain_503_and_new_ones_wait(ext):
    a = ext('rate=20')
    pid = server_of(a)
    old = a.child('engine0')
    import threading
    got = []
    t = threading.Thread(target=lambda: got.append(stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 400}, timeout=150)))
    t.start()
    wait_for('the server works on it', lambda: any(c['in_flight'] for c in a.ctl_json('status')['children'] if c['name'] == 'engine0'))
    os.kill(pid, signal.SIGKILL)
    t.join()
    r = got[0]
    assert r.status == 503, r.status
    r.read()
    stream.check_error(503, r.headers, r.raw)
    # one that comes while it restarts is held, not refused
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 2}, timeout=150)
    assert r.status == 200
    assert a.child('engine0') != old


def test_a_hang_is_found_by_progress(ext):
    """The server is stopped: no byte comes, so it is killed after the budget, while health answers at once."""
    a = ext('rate=50')
    s = a.stream('Hello', 400)
    s.run(until_events=5)
    pid = server_of(a)
    os.kill(pid, signal.SIGSTOP)
    t0 = time.monotonic()
    wait_for('it is killed', lambda: not alive(pid), 15)
    assert 2 <= time.monotonic() - t0
    s.run()
    assert check_transcript(s, ('error',)) == 'error'
    a.wait_ready()
    assert a.metric('vitriol_hung_total') == 1


def test_counters_that_stand_still_are_no_progress(ext, tmp_path):
    """The server answers every question for its counters, but not the one request that it has."""
    once = tmp_path / 'once'
    once.write_text('')
    a = ext('stuck-after=5', 'once=%s' % once, sets={'external.metrics': '/metrics'})
    pid = server_of(a)
    s = a.stream('Hello', 40)
    s.run(until_events=3)
    wait_for('it is killed', lambda: not alive(pid), 15)
    s.run()
    assert check_transcript(s, ('error',)) == 'error'
    a.wait_ready()


def test_silence_that_counts_tokens_is_no_hang(ext):
    """A whole answer takes longer than the budget; the server's counters show that it works."""
    a = ext('rate=20', sets={'external.metrics': '/metrics'})
    old = a.child('engine0')
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 120}, timeout=300)
    assert r.status == 200 and r.json()['usage']['completion_tokens'] == 120
    assert a.child('engine0') == old


def test_attached_server(make):
    """It runs already; when it goes away the appliance waits for it, and does not end it when it stops itself."""
    port = free_port()
    run = lambda: subprocess.Popen([sys.executable, SERVER, str(port)])  # noqa: E731
    server = run()
    try:
        a = make(sets=dict(SETS, **{'external.url': 'http://127.0.0.1:%d' % port, 'engine.canary_s': 1, 'model.path': ''}))
        assert stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 2}).status == 200
        server.kill()
        server.wait()
        wait_for('its absence is seen', lambda: _status(a) == 503, 15, 0.2)
        server = run()
        a.wait_ready(30)
        assert a.stop() == 0
        assert server.poll() is None
    finally:
        server.kill()
        server.wait()


def test_gates(ext, make, tmp_path):
    bad = [({'external.command': 'x --port 1'}, 'takes no {port}'), ({}, 'needs external.command'),
           ({'external.url': 'localhost:80'}, 'is not http://HOST:PORT')]
    for sets, part in bad:
        a = make(sets=dict(SETS, **sets, **{'model.path': ''}), wait=False)
        assert a.proc.wait(60) == 78 and part in a.log_text()
    a = make(sets=dict(SETS, **{'external.command': '/nowhere/server {port}', 'model.path': ''}), wait=False)
    c = wait_for('it fails for good', lambda: _failed(a), 20, 0.2)
    assert c['class'] == 'config' and 'cannot be started' in c['detail']
    key = tmp_path / 'key'
    key.write_text('k' * 501)
    key.chmod(0o600)
    a = ext(sets={'external.api_key_file': str(key)}, wait=False)
    wait_for('it is refused', lambda: '%s is longer than 500 bytes' % key in a.log_text(), 20, 0.2)


def _failed(a):
    rc, out = a.ctl('--json', 'status', check=False)
    if not out or rc == 69:
        return None
    c = [c for c in json.loads(out).get('children', []) if c['name'] == 'engine0' and c['state'] == 'failed']
    return c[0] if c else None


def test_apply_from_a_native_engine_and_back(make, tmp_path):
    d = tmp_path / 'profiles'
    d.mkdir()
    (d / 'scripted.conf').write_text('[engine]\nkind = external\n[external]\ncommand = %s\nslots = 2\n' % command())
    a = make(sets={'paths.profiles_dir': str(d), 'engine.ctx_tokens': 1024, 'engine.slots': 2})
    assert a.completion('Hello', 3)
    a.ctl('bless', 'own')
    a.ctl('apply', 'scripted', '--wait')
    a.wait_ready()
    r = stream.post(a.port, '/v1/completions', {'prompt': 'x', 'max_tokens': 2})
    assert r.status == 200 and r.json()['choices'][0]['text'] == 'w0 w1'
    a.ctl('rollback', 'own', '--wait')
    a.wait_ready()
    assert re.search(r'kind.*native', a.ctl('config', 'show', 'engine.kind')[1])
    assert a.completion('Hello', 3)


def real_server():
    """The command line of a real peer that is installed, or a skip that says what is missing."""
    if os.environ.get('VTEST_LLAMA_SERVER'):
        return os.environ['VTEST_LLAMA_SERVER'] + ' -m {model} --port {port} -c {ctx} -np 1 -t 1 --metrics'
    try:
        import llama_cpp.server  # noqa: F401
    except ImportError:
        pytest.skip('neither llama-cpp-python[server] is installed nor does VTEST_LLAMA_SERVER name a llama-server')
    return '%s -m llama_cpp.server --model {model} --port {port} --n_ctx {ctx} --n_threads 1' % sys.executable


def test_a_real_peer_serves_the_dense_model(make):
    """Decode, kill and hang of another engine, when there is one and VTEST_LAPIS_DENSE names the model's file."""
    model = os.environ.get('VTEST_LAPIS_DENSE', '')
    run = real_server()
    if not os.path.exists(model):
        pytest.skip('VTEST_LAPIS_DENSE names no model')
    a = make(sets=dict(SETS, **{'external.command': run, 'model.path': model, 'external.ctx_tokens': 512, 'engine.hang_budget_s': 15}),
             wait=False)
    a.wait_ready(120)
    want = a.text('The ship', 12)
    assert want and a.text('The ship', 12) == want
    for sig in (signal.SIGKILL, signal.SIGSTOP):
        s = a.stream('The ship', 400)
        s.run(until_events=3)
        pid, old = server_of(a), a.child('engine0')
        os.kill(pid, sig)
        wait_for('it is gone', lambda: not alive(pid), 60)
        s.run()
        assert check_transcript(s, ('error',)) == 'error'
        a.next_generation('engine0', old, 120)
        assert a.text('The ship', 12) == want
