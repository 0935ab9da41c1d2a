"""Embeddings of the real engine: shapes, what they are made of, and an engine that dies beneath them."""
import base64
import threading
import time

import numpy as np
import pytest

from harness.appliance import Appliance
from harness.stream import check_error, post
from harness.text import prose

TEXTS = ['It was a cold evening, and the old man sat by the fire.', 'caf\u00e9 \U0001f600', 'x', prose(900)]


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 2048, 'engine.slots': 4, 'gateway.pooling': 'mean'}) as a:
        yield a


def ask(app, texts, path='/v1/embeddings', **kw):
    r = post(app.port, path, dict({'input': texts}, **kw))
    assert r.status == 200, r.raw
    return r.json()


def vectors(answer):
    assert [d['index'] for d in answer['data']] == list(range(len(answer['data'])))
    return np.array([d['embedding'] for d in answer['data']], np.float64)


def test_shapes(app):
    a = ask(app, TEXTS)
    v = vectors(a)
    assert a['object'] == 'list' and v.shape[0] == len(TEXTS)
    assert np.abs(np.linalg.norm(v, axis=1) - 1).max() < 1e-6
    ids = [post(app.port, '/tokenize', {'content': t, 'add_special': True}).json()['tokens'] for t in TEXTS]
    n = sum(map(len, ids))
    assert a['usage'] == {'prompt_tokens': n, 'total_tokens': n}
    assert np.array_equal(vectors(ask(app, ids)), v)
    coded = ask(app, TEXTS, encoding_format='base64')
    got = [np.frombuffer(base64.b64decode(d['embedding']), '<f4') for d in coded['data']]
    assert np.array_equal(np.array(got), v.astype(np.float32))
    native = ask(app, TEXTS, '/embedding')
    assert np.array_equal(np.array([x['embedding'][0] for x in native]), v)


def test_mean_of_the_rows(app, make):
    rows = make(sets={'engine.ctx_tokens': 2048, 'engine.slots': 2})  # its file names no pooling
    r = post(rows.port, '/v1/embeddings', {'input': 'x'})
    r.read()
    assert r.status == 400
    check_error(400, r.headers, r.raw)
    each = np.array(ask(rows, TEXTS[0], '/embedding')[0]['embedding'], np.float64)
    mean = np.array(ask(app, TEXTS[0], embd_normalize=-1)['data'][0]['embedding'])
    assert np.abs(each.mean(0) - mean).max() < 1e-5 * np.abs(each).max()
    assert np.abs(vectors(ask(app, TEXTS[0]))[0] - mean / np.linalg.norm(mean)).max() < 1e-6


def test_beside_a_conversation(app):
    want = app.text(TEXTS[0], 40)
    v = vectors(ask(app, TEXTS))
    out = {}
    t = threading.Thread(target=lambda: out.update(text=app.text(TEXTS[0], 40)), daemon=True)
    t.start()
    many = vectors(ask(app, TEXTS * 10))
    t.join(120)
    assert out['text'] == want
    assert np.array_equal(many, np.tile(v, (10, 1)))


def test_killed_in_the_middle(app):
    texts = [prose(4000 + i) for i in range(12)]
    start = time.monotonic()
    want = vectors(ask(app, texts))
    took = time.monotonic() - start
    old = app.child('engine0')
    out = {}
    t = threading.Thread(target=lambda: out.update(ask(app, texts)), daemon=True)
    t.start()
    time.sleep(took / 3)
    app.kill('engine0')
    t.join(120)
    app.next_generation('engine0', old)
    app.wait_ready()
    assert np.array_equal(vectors(out), want)
