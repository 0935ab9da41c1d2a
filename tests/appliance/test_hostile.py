"""Hostile HTTP: a clear error each time, and the next client is served as if nothing had been."""
import json
import random
import socket
import time

import pytest

from harness import stream
from harness.appliance import Appliance
from harness.stream import check_error, get, post


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 1024, 'engine.slots': 2, 'http.max_body_mib': 1}) as a:
        yield a


@pytest.fixture(autouse=True)
def still_well(app):
    gateway = app.children()['gateway']
    yield
    assert get(app.port, '/health').status == 200
    assert app.children()['gateway'] == gateway, 'the gateway died'


CHAT = '/v1/chat/completions'
MSG = [{'role': 'user', 'content': 'x'}]

BAD_BODIES = [
    b'', b'{', b'[]', b'"x"', b'nul', b'{"messages":', b'\xff\xfe\x00', b'{"messages":[]}x', b'{"a":1,}',
    b'{"messages":[{"role":"user","content":"\xff"}]}', b'[' * 100000, b'{"a":' * 5000 + b'1' + b'}' * 5000,
    b'{"messages":[{"role":"user","content":"\\ud800"}]}', b'{"max_tokens":1e999,"messages":[]}', b'{}',
]


@pytest.mark.parametrize('i', range(len(BAD_BODIES)))
@pytest.mark.parametrize('path', [CHAT, '/v1/completions', '/completion'])
def test_bad_json(app, path, i):
    r = post(app.port, path, BAD_BODIES[i])
    r.read()
    assert r.status == 400, (BAD_BODIES[i][:60], r.raw[:200])
    check_error(400, r.headers, r.raw)
    assert r.json()['error']['type'] == 'invalid_request_error'


WRONG = [  # field, value
    ('messages', 'x'), ('messages', [1]), ('messages', [{'content': 'x'}]), ('messages', [{'role': 5, 'content': 'x'}]),
    ('messages', [{'role': 'user', 'content': 7}]), ('temperature', 'hot'), ('top_p', []), ('max_tokens', 'many'),
    ('max_tokens', -7), ('stream', 'yes'), ('stop', 5), ('stop', [5]), ('seed', 'x'), ('n', 0), ('n', 99), ('n', 'two'),
    ('logit_bias', 'x'), ('logprobs', 'x'), ('top_logprobs', 50), ('stream_options', 'x'), ('presence_penalty', 'x'),
    ('response_format', {'type': 'nonsense'}),
]


@pytest.mark.parametrize('field,value', WRONG, ids=['%s=%s' % (f, json.dumps(v)) for f, v in WRONG])
def test_wrong_types(app, field, value):
    r = post(app.port, CHAT, {'messages': MSG, 'max_tokens': 2, field: value})
    r.read()
    assert r.status == 400, r.raw[:300]
    check_error(400, r.headers, r.raw)
    assert field in r.json()['error']['message'], r.raw


def test_number_out_of_range(app):
    """Valid JSON: the number and its place are named."""
    r = post(app.port, CHAT, b'{"messages":[{"role":"user","content":"x"}],"logit_bias":{"5":1e400},"max_tokens":2}')
    assert r.status == 400 and r.json()['error']['param'] == 'logit_bias.5' and '1e400' in r.json()['error']['message']
    r = post(app.port, CHAT, {'messages': MSG, 'seed': 1 << 64})
    assert r.status == 400 and r.json()['error']['param'] == 'seed' and str(1 << 64) in r.json()['error']['message']


def test_null_means_absent(app):
    body = {'messages': MSG, 'max_tokens': 2}
    for f in ('temperature', 'top_p', 'stop', 'seed', 'n', 'logit_bias', 'stream', 'stream_options', 'tools',
              'tool_choice', 'response_format', 'logprobs', 'top_logprobs', 'user', 'presence_penalty'):
        body[f] = None
    assert post(app.port, CHAT, body).status == 200


def test_unknown_fields_are_ignored(app):
    assert post(app.port, CHAT, {'messages': MSG, 'max_tokens': 2, 'metadata': {'a': 'b'}, 'store': True, 'zz': [1]}).status == 200


def test_body_too_large(app):
    r = post(app.port, CHAT, b'{"messages":"' + b'x' * (2 << 20) + b'"}')
    r.read()
    assert r.status == 413
    check_error(413, r.headers, r.raw)


def test_lying_content_length(app):
    s = stream.connect(app.port)
    s.sendall(b'POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n' % CHAT.encode())
    s.settimeout(10)
    got = s.recv(4096)
    assert got == b'' or got.split(b' ')[1] in (b'400', b'413')


def test_huge_headers(app):
    s = stream.connect(app.port)
    try:
        s.sendall(b'GET /health HTTP/1.1\r\nHost: x\r\n' + b'X-A: ' + b'a' * (1 << 20) + b'\r\n\r\n')
        got = s.recv(4096)
    except (ConnectionResetError, BrokenPipeError):
        got = b''
    assert got == b'' or got.split(b' ')[1] in (b'400', b'413', b'431')


GARBAGE = [b'\x00' * 64, b'GET\r\n\r\n', b'GET / HTTP/9.9\r\n\r\n', b'POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n',
           b'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n', b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
           b'GET ' + b'/a' * 30000 + b' HTTP/1.1\r\nHost: x\r\n\r\n',
           b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n']


@pytest.mark.parametrize('i', range(len(GARBAGE)))
def test_garbage(app, i):
    s = stream.connect(app.port)
    s.settimeout(5)
    try:
        s.sendall(GARBAGE[i])
        s.shutdown(socket.SHUT_WR)
        got = s.recv(4096)
    except (ConnectionResetError, BrokenPipeError):
        got = b''
    assert got == b'' or got.split(b' ')[1][:1] == b'4' or got.split(b' ')[1] == b'505', got[:200]


def test_random_bytes(app):
    rnd = random.Random(5)
    for _ in range(150):
        s = stream.connect(app.port)
        s.settimeout(5)
        try:
            s.sendall(rnd.randbytes(rnd.randrange(1, 400)) + b'\r\n\r\n')
            s.shutdown(socket.SHUT_WR)
            while s.recv(4096):
                pass
        except OSError:
            pass
        s.close()


def test_mutated_requests(app):
    """A valid request with a few bytes changed: never a 5xx, never silence."""
    rnd = random.Random(11)
    body = json.dumps({'messages': [{'role': 'user', 'content': 'Hello'}], 'max_tokens': 2, 'stop': ['x'], 'n': 1}).encode()
    for _ in range(200):
        b = bytearray(body)
        for _ in range(rnd.randrange(1, 4)):
            b[rnd.randrange(len(b))] = rnd.randrange(256)
        r = post(app.port, CHAT, bytes(b), timeout=60)
        r.read()
        assert r.status in (200, 400, 404), (bytes(b), r.status, r.raw[:200])
        if r.status != 200:
            check_error(r.status, r.headers, r.raw)


def test_slow_clients_do_not_keep_others_out(app):
    """A hundred connections that send one byte now and then; ordinary requests stay quick."""
    slow = [stream.connect(app.port) for _ in range(100)]
    for s in slow:
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le')
    worst = 0
    for i in range(10):
        for s in slow[i::10]:
            s.sendall(b'n')
        t0 = time.monotonic()
        assert get(app.port, '/health').status == 200
        worst = max(worst, time.monotonic() - t0)
    for s in slow:
        s.close()
    assert worst < 1.0, 'health took %.2f s beside slow clients' % worst


def test_bad_slot_requests(app):
    for path in ('/slots/x?action=save', '/slots/99?action=save', '/slots/0?action=fly', '/slots/0'):
        r = post(app.port, path, {'filename': 'a.bin'})
        r.read()
        assert r.status == 400, (path, r.raw)
    for name in ('', '../x', 'a/b', 'a\x01', 'x' * 256, ' a', 'a.', 'a*b', '..'):
        r = post(app.port, '/slots/0?action=save', {'filename': name})
        r.read()
        assert r.status == 400, (name, r.raw)
        check_error(400, r.headers, r.raw)
