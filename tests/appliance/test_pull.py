"""vitriol pull against a server that misbehaves."""
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness.appliance import MODEL, clean_env, free_port, program, wait_for
from harness.fileserver import FileServer, gguf, sha256
from harness.stream import get

DATA = gguf(700001)
NAME = 'm-Q4_K_M.gguf'
SECRET = 'hf_thisIsASecretToken'


@pytest.fixture
def server():
    s = FileServer()
    s.files['/d/' + NAME] = DATA
    yield s
    s.close()


@pytest.fixture
def place():
    d = tempfile.mkdtemp(prefix='vt p', dir='/tmp')
    yield d
    shutil.rmtree(d, ignore_errors=True)


def env(place, **more):
    e = clean_env()
    e = {k: v for k, v in e.items() if not k.startswith(('HF_', 'http_proxy', 'https_proxy', 'all_proxy'))}
    return dict(e, HOME=place, VITRIOL_PATHS_MODELS_DIR=place + '/models', NO_PROXY='*', **more)


def start(place, *args, **more):
    return subprocess.Popen([program('vitriol'), 'pull'] + list(args), env=env(place, **more), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pull(place, *args, rc=0, **more):
    p = start(place, *args, **more)
    out, said = p.communicate(timeout=400)
    assert p.returncode == rc, (p.returncode, out, said)
    return out + said


def folder(place):
    d = place + '/models'
    return sorted(os.listdir(d)) if os.path.isdir(d) else []


def content(place, name=NAME):
    with open(os.path.join(place, 'models', name), 'rb') as f:
        return f.read()


def url(server):
    return server.url + '/d/' + NAME


def test_a_file_arrives_whole_and_under_its_name_only(server, place):
    said = pull(place, url(server))
    assert folder(place) == [NAME] and content(place) == DATA
    assert sha256(DATA) in said and 'vitriol serve --model ' + NAME in said
    assert os.stat(place + '/models/' + NAME).st_mode & 0o777 == 0o644
    n = len(server.requests)
    assert 'was there' in pull(place, url(server))
    assert len(server.requests) == n, 'what is there is not fetched again'
    pull(place, '--force', '--name', 'other.gguf', url(server))
    assert folder(place) == [NAME, 'other.gguf']


@pytest.mark.parametrize('how', [{'cut': 300000}, {'cut': 300000, 'chunked': True}, {'cut': 0}, {'status': 500},
                                 {'status': 429, 'headers': {'Retry-After': '1'}}, {'status': 408}])
def test_goes_on_after_a_failure(server, place, how):
    server.script = [how]
    said = pull(place, url(server))
    assert content(place) == DATA and folder(place) == [NAME]
    assert 'trying again' in said
    if how.get('cut'):
        assert server.ranges() == [None, 'bytes=300000-'] and server.sent == len(DATA)
        assert server.requests[1][1]['If-Range'] == '"%s"' % sha256(DATA)[:16]


def test_goes_on_in_a_later_run(server, place):
    server.script = [{'cut': 200000}]
    pull(place, '--retries', '0', url(server), rc=69)
    assert folder(place) == [NAME + '.part', NAME + '.part.state']
    pull(place, url(server))
    assert content(place) == DATA and folder(place) == [NAME] and server.sent == len(DATA)


def test_a_server_without_ranges_is_asked_for_all(server, place):
    server.script = [{'cut': 200000}, {'no_range': True}]
    assert 'beginning again' in pull(place, url(server))
    assert content(place) == DATA


@pytest.mark.parametrize('second', [{}, {'ignore_if_range': True}])
def test_a_file_that_changed_is_fetched_from_its_beginning(server, place, second):
    """Also when the server gives the rest of the new file though it was asked for that of the old."""
    server.script = [{'cut': 200000}]
    pull(place, '--retries', '0', url(server), rc=69)
    new = gguf(len(DATA) + 5, 2)
    server.files['/d/' + NAME] = new
    server.script = [second]
    assert 'changed' in pull(place, url(server))
    assert content(place) == new


def test_a_file_that_became_shorter(server, place):
    server.script = [{'cut': 200000}]
    pull(place, '--retries', '0', url(server), rc=69)
    server.files['/d/' + NAME] = new = gguf(1000, 3)
    server.script = [{'ignore_if_range': True}]
    pull(place, url(server))
    assert content(place) == new


def test_content_without_a_name_is_not_continued(server, place):
    server.script = [{'cut': 200000, 'etag': None}, {'etag': None}]
    pull(place, url(server))
    assert content(place) == DATA and server.ranges() == [None, None]


@pytest.mark.parametrize('how, rc, word', [
    ({'status': 404}, 66, 'no such file'), ({'status': 401}, 77, 'HF_TOKEN'), ({'status': 403}, 77, 'HF_TOKEN'),
    ({'status': 400}, 69, 'status 400'), ({'status': 503}, 69, 'busy'),
    ({'status': 429, 'headers': {'Retry-After': '7200'}}, 69, 'wait for 7200 s'),
    ({'length': len(DATA) + 10}, 69, ''), ({'headers': {'X-Linked-Size': '5'}}, 65, '5')])
def test_errors(server, place, how, rc, word):
    server.script = [how] * 3
    said = pull(place, '--retries', '0', url(server), rc=rc)
    assert word in said and said.count('\n') <= 2, said
    assert NAME not in folder(place)


def test_what_is_no_model_is_not_kept(server, place):
    server.files['/d/' + NAME] = b'<!DOCTYPE html>' * 1000
    assert 'no GGUF file' in pull(place, url(server), rc=65)
    server.files['/d/' + NAME] = b''
    assert 'no GGUF file' in pull(place, url(server), rc=65)
    assert folder(place) == []
    for text in ('x.gguf', 'ftp://h/x.gguf', server.url + '/', server.url + '/d/x.bin', 'hf:o', 'hf:o/r:a/b'):
        pull(place, text, rc=64)
    pull(place, '--sha256', '12', url(server), rc=64)
    pull(place, rc=64)


def test_a_model_that_the_source_has_only_in_part_cannot_be_served(server, place):
    """Its size and sum are right, its tensors end behind the end of the file; asked again, nothing is fetched again."""
    server.files['/d/' + NAME] = DATA[:-1]
    said = pull(place, url(server), rc=65)
    assert 'cannot be served' in said and NAME in said and 'serve it' not in said
    n = len(server.requests)
    assert 'cannot be served' in pull(place, url(server), rc=65) and len(server.requests) == n
    parts = {'/s/m-%05d-of-00002.gguf' % i: gguf(9000, i, (i - 1, 2)) for i in (1, 2)}
    parts['/s/m-00002-of-00002.gguf'] = parts['/s/m-00002-of-00002.gguf'][:-1]
    server.files.update(parts)
    assert 'm-00002-of-00002.gguf' in pull(place, server.url + '/s/m-00001-of-00002.gguf', rc=65)


@pytest.mark.parametrize('where', ['127.0.0.1:%d', 'no-such-host.invalid:%d'])
def test_an_address_without_a_server_is_said_at_once(server, place, where):
    t0 = time.monotonic()
    said = pull(place, 'http://%s/%s' % (where % free_port(), NAME), rc=69)
    assert time.monotonic() - t0 < 5 and 'trying again' not in said and NAME in said
    assert folder(place) == []


def test_a_server_that_goes_away_is_waited_for(server, place):
    """It was there, so the tries go on, as many as were asked for."""
    server.script = [{'cut': 200000}]
    p = start(place, '--retries', '2', url(server))
    wait_for('the first part', lambda: os.path.exists(place + '/models/' + NAME + '.part'))
    wait_for('the cut', lambda: server.sent == 200000)
    server.close()
    said = p.communicate(timeout=200)[1]
    assert p.returncode == 69 and said.count('trying again') == 2, said
    assert NAME + '.part' in folder(place)


def test_sums(server, place):
    good, bad = sha256(DATA), sha256(b'')
    assert 'SHA-256' in pull(place, '--sha256', bad, url(server), rc=65)
    assert folder(place) == []
    pull(place, '--sha256', good.upper(), url(server))
    assert 'has another SHA-256' in pull(place, '--sha256', bad, url(server), rc=73)
    assert content(place) == DATA
    server.script = [{'headers': {'X-Linked-Etag': '"%s"' % bad}}]
    pull(place, '--name', 'x.gguf', url(server), rc=65)
    assert folder(place) == [NAME]


def test_the_hub(server, place):
    other = gguf(5000, 5)
    server.hub('o/r', {'README.md': b'#', NAME: DATA, 'm-Q8_0.gguf': other})
    hub = {'HF_ENDPOINT': server.url + '/'}
    listed = pull(place, '--list', 'hf:o/r', **hub)
    assert re.search(r'\b700001  %s$' % re.escape(NAME), listed, re.M) and 'README' not in listed
    assert 'as the source names it' in pull(place, 'hf:o/r', **hub)
    assert content(place) == DATA
    pull(place, 'hf:o/r:q8_0', **hub)
    assert content(place, 'm-Q8_0.gguf') == other
    assert 'm-Q8_0.gguf' in pull(place, 'hf:o/r:Q2_K', rc=66, **hub)
    assert 'holds no x.gguf' in pull(place, 'hf:o/r/x.gguf', rc=66, **hub)
    assert 'no such file' in pull(place, 'hf:o/none', rc=66, **hub)
    server.files['/api/models/o/r/revision/main'] = b'<html>'
    pull(place, 'hf:o/r', rc=65, **hub)


@pytest.fixture
def cdn():
    s = FileServer()
    yield s
    s.close()


def test_the_hub_leads_to_signed_addresses(server, cdn, place):
    """Each try asks the hub anew, goes on where it was, and names the content to the server that has it, not the secret."""
    server.hub_with_cdn(cdn, 'o/r', {NAME: DATA, 'm-Q8_0.gguf': gguf(5000, 3)})
    cdn.script = [{'cut': 250000, 'etag': '"d41d8cd98f00b204e9800998ecf8427e-12"'}, {'etag': '"d41d8cd98f00b204e9800998ecf8427e-12"'}]
    said = pull(place, 'hf:o/r', HF_ENDPOINT=server.url, HF_TOKEN=SECRET)
    assert content(place) == DATA and folder(place) == [NAME] and sha256(DATA) in said
    assert cdn.ranges() == [None, 'bytes=250000-'] and cdn.sent == len(DATA)
    assert cdn.requests[1][1]['If-Range'] == '"d41d8cd98f00b204e9800998ecf8427e-12"'
    assert len(cdn.signatures) == 2 and not any('Authorization' in h for _, h in cdn.requests)
    assert 'sig0' not in said and SECRET not in said


def test_a_signed_address_that_is_over_is_asked_for_anew(server, cdn, place):
    server.hub_with_cdn(cdn, 'o/r', {NAME: DATA}, lifetimes=[0, 0])
    said = pull(place, 'hf:o/r', HF_ENDPOINT=server.url)
    assert content(place) == DATA and 'trying again' in said and 'token' not in said.lower()
    assert len(cdn.requests) == 3


def test_a_signed_address_that_never_holds(server, cdn, place):
    server.hub_with_cdn(cdn, 'o/r', {NAME: DATA}, lifetimes=[0] * 10)
    said = pull(place, '--retries', '1', 'hf:o/r', HF_ENDPOINT=server.url, rc=69)
    assert 'is refused there (status 403)' in said and 'Signature' not in said and folder(place) == []


def test_a_whole_part_is_checked_and_placed(server, cdn, place):
    """Everything has come, but the run ended before it was checked."""
    server.hub_with_cdn(cdn, 'o/r', {NAME: DATA}, sums=False)
    cdn.script = [{'cut': len(DATA) - 1}]
    pull(place, '--retries', '0', 'hf:o/r', HF_ENDPOINT=server.url, rc=69)
    with open(place + '/models/' + NAME + '.part', 'ab') as f:
        f.write(DATA[-1:])
    pull(place, 'hf:o/r', HF_ENDPOINT=server.url)
    assert content(place) == DATA and folder(place) == [NAME]


def test_other_content_than_the_hub_names(server, cdn, place):
    server.hub_with_cdn(cdn, 'o/r', {NAME: DATA})
    for path in cdn.files:
        cdn.files[path] = gguf(len(DATA), 9)
    said = pull(place, 'hf:o/r', HF_ENDPOINT=server.url, rc=65)
    assert 'SHA-256' in said and folder(place) == []


def test_compressed_though_nobody_asked(server, cdn, place):
    import gzip
    server.hub_with_cdn(cdn, 'o/r', {NAME: DATA})
    for path in cdn.files:
        cdn.files[path] = gzip.compress(DATA)[:len(DATA)].ljust(len(DATA), b'\0')
    cdn.script = [{'headers': {'Content-Encoding': 'gzip'}}]
    said = pull(place, 'hf:o/r', HF_ENDPOINT=server.url, rc=65)
    assert 'no GGUF file' in said and folder(place) == []


def test_sets_come_whole(server, place):
    parts = {'Q4_K_M/m-Q4_K_M-%05d-of-00003.gguf' % i: gguf(90000 + i, i, (i - 1, 3)) for i in (1, 2, 3)}
    server.hub('o/set', parts)
    pull(place, 'hf:o/set:Q4_K_M', HF_ENDPOINT=server.url)
    assert folder(place) == [os.path.basename(n) for n in parts]
    for n, d in parts.items():
        assert content(place, os.path.basename(n)) == d
        server.files['/u/' + os.path.basename(n)] = d
    shutil.rmtree(place + '/models')
    pull(place, server.url + '/u/m-Q4_K_M-00002-of-00003.gguf')
    assert len(folder(place)) == 3
    pull(place, '--name', 'x.gguf', server.url + '/u/m-Q4_K_M-00002-of-00003.gguf', rc=64)


def test_a_secret_goes_to_the_hub_only_and_into_no_text(server, place):
    elsewhere = FileServer()
    try:
        server.hub('o/gated', {NAME: DATA})
        listing, path = '/api/models/o/gated/revision/main', [p for p in server.files if p.startswith('/o/gated/')][0]
        server.needs_token = {listing: SECRET, path: SECRET}
        elsewhere.files['/cdn'] = DATA
        said = pull(place, 'hf:o/gated', rc=77, HF_ENDPOINT=server.url)
        assert 'HF_TOKEN' in said
        said = pull(place, 'hf:o/gated', rc=77, HF_ENDPOINT=server.url, HF_TOKEN='hf_another')
        assert 'the token gives no access' in said and 'hf_another' not in said
        server.script = [{}, {'redirect': elsewhere.url + '/cdn'}]
        elsewhere.script = [{'cut': 1000}]
        p = start(place, '--retries', '0', 'hf:o/gated', HF_ENDPOINT=server.url, HF_TOKEN=SECRET)
        out, err = p.communicate(timeout=200)
        assert p.returncode == 69 and SECRET not in out + err
        assert elsewhere.requests and 'Authorization' not in elsewhere.requests[0][1]
        for name in folder(place):
            assert SECRET.encode() not in content(place, name)
        os.makedirs(place + '/.cache/huggingface')
        with open(place + '/.cache/huggingface/token', 'w') as f:
            f.write(SECRET + '\n')
        pull(place, 'hf:o/gated', HF_ENDPOINT=server.url)
        assert content(place) == DATA
        n = len(server.requests)
        pull(place, '--name', 'y.gguf', server.url + '/d/' + NAME)  # not the hub: no token
        assert all('Authorization' not in h for _, h in server.requests[n:])
        said = pull(place, '--name', 'z.gguf', server.url.replace('//', '//me:pass@') + '/d/none.gguf?key=abc', rc=66)
        assert 'pass' not in said and 'abc' not in said
    finally:
        elsewhere.close()


def test_one_at_a_time(server, place):
    server.script = [{'pause': 0.12, 'step': 20000}]
    p = start(place, url(server))
    wait_for('the first begins', lambda: server.sent)
    assert 'another vitriol pull' in pull(place, url(server), rc=75)
    pull(place, '--name', 'other.gguf', url(server))
    assert p.wait(200) == 0 and folder(place) == [NAME, 'other.gguf']
    p.communicate()


def test_no_room_is_said_before_anything_is_written(server, place):
    server.script = [{'length': 1 << 58}]
    assert 'no room' in pull(place, url(server), rc=74)
    assert folder(place) == []


def test_interrupt_keeps_what_came(server, place):
    for sig in (signal.SIGINT, signal.SIGTERM):
        server.script = [{'pause': 0.4, 'step': 50000}]
        before = server.sent
        p = start(place, url(server))
        wait_for('bytes came', lambda: server.sent > before)
        time.sleep(0.2)
        p.send_signal(sig)
        out, err = p.communicate(timeout=200)
        assert p.returncode == 130 and 'interrupted' in err and 'Traceback' not in err
    assert folder(place) == [NAME + '.part', NAME + '.part.state']
    pull(place, url(server))
    assert content(place) == DATA and any(server.ranges())


def test_interrupt_while_waiting_to_try_again(server, place):
    server.script = [{'status': 503, 'headers': {'Retry-After': '300'}}]
    p = start(place, url(server))
    wait_for('the request', lambda: server.requests)
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    assert p.wait(200) == 130
    p.communicate()


def test_kill_at_any_time(server, place):
    """kill -9 at random moments, then the same command: the right file, and never a wrong one under its name."""
    rng = random.Random(7)
    data = gguf(3000000, 9)
    server.files['/d/' + NAME] = data
    for _ in range(12):
        server.script = [{'pause': 0.004, 'step': 40000}]
        p = start(place, '--sha256', sha256(data), url(server))
        time.sleep(rng.uniform(0, 0.25))
        p.kill()
        p.communicate()
        assert NAME not in folder(place) or content(place) == data
    pull(place, '--sha256', sha256(data), url(server))
    assert content(place) == data and folder(place) == [NAME]


def test_full_disk(server, place):
    """A file size limit stands in for a full disk; then there is room again."""
    p = subprocess.run(['sh', '-c', 'ulimit -f 600; exec "$0" pull "$1"', program('vitriol'), url(server)], env=env(place),
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == 74 and 'is kept' in p.stderr, p
    assert NAME + '.part' in folder(place)
    pull(place, url(server))
    assert content(place) == DATA and server.ranges()[-1].startswith('bytes=')


def test_really_full_disk(server, place):
    tmpfs = place + '/small'
    os.mkdir(tmpfs)
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=400k', 'none', tmpfs], capture_output=True).returncode:
        pytest.skip('mounting needs root')
    try:
        assert 'no room' in pull(place, '--dir', tmpfs, url(server), rc=74)
        server.script = [{'chunked': True}]  # no length beforehand: the write fails
        assert 'is kept' in pull(place, '--dir', tmpfs, url(server), rc=74)
        subprocess.check_call(['mount', '-o', 'remount,size=4m', tmpfs])
        pull(place, '--dir', tmpfs, url(server))
        with open(tmpfs + '/' + NAME, 'rb') as f:
            assert f.read() == DATA
    finally:
        subprocess.check_call(['umount', tmpfs])


def test_a_bar_on_a_terminal(server, place):
    server.script = [{'pause': 0.03, 'step': 20000}]
    parent, child = pty.openpty()
    p = subprocess.Popen([program('vitriol'), 'pull', url(server)], env=env(place), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=child)
    os.close(child)
    seen = b''
    while True:
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(parent)
    assert p.wait(150) == 0
    assert re.search(rb'#+-* *\d+%, \d+ kB of 700 kB', seen), seen


def test_serve_finds_it_by_its_name(server, place):
    with open(MODEL, 'rb') as f:
        server.files['/d/pulled.gguf'] = f.read()
    pull(place, server.url + '/d/pulled.gguf')
    port = free_port()
    with open(place + '/log', 'w') as log:
        p = subprocess.Popen([program('vitriol'), 'serve', '--model', 'pulled', '--port', str(port), '--run-dir', place + '/r',
                              '--state-dir', place + '/s', '--slots', '1', '--ctx', '512', '--set', 'store.min_free_mib=0',
                              '--set', 'store.ballast_mib=0'], env=env(place), cwd='/', stdin=subprocess.DEVNULL, stdout=log,
                             stderr=log)

    def healthy():
        assert p.poll() is None, open(place + '/log').read()
        try:
            return get(port, '/health').status == 200
        except OSError:
            return False
    try:
        wait_for('serve is ready', healthy, 60, 0.1)
        assert get(port, '/v1/models').json()['data'][0]['id'] == 'pulled'
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(150)
    missing = subprocess.run([program('vitriol'), 'serve', '--model', 'absent'], env=env(place), cwd='/', capture_output=True,
                             text=True)
    assert missing.returncode == 66 and 'vitriol pull' in missing.stderr
