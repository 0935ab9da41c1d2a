"""`echo` with `logprobs`: what evaluation harnesses ask for, the log-probability of every token of a prompt."""
import json
import subprocess
import threading
import time

import numpy as np
import pytest

from harness.appliance import MODEL, Appliance, clean_env, program
from harness.stream import Stream, post
from harness.text import prose

PROMPT = 'It was a cold evening \u2013 3 \u00b0C \u2013 and the old man\u2019s \U0001f600'

LONG = {'max_tokens': 12, 'temperature': 0, 'echo': True, 'logprobs': 2}


@pytest.fixture(scope='module')
def app():
    with Appliance(sets={'engine.ctx_tokens': 2048, 'engine.slots': 4}) as a:
        yield a


def ask(app, prompt, max_tokens, **kw):
    body = dict({'prompt': prompt, 'max_tokens': max_tokens, 'temperature': 0, 'echo': True, 'logprobs': 2}, **kw)
    r = post(app.port, '/v1/completions', body)
    assert r.status == 200, r.raw
    return r.json()


def ids_of(app, text):
    return post(app.port, '/tokenize', {'content': text, 'add_special': True}).json()['tokens']


def check_shapes(lp, text, n):
    """Both shapes agree, the offsets cut the text into the tokens."""
    assert len(lp['tokens']) == len(lp['token_logprobs']) == len(lp['top_logprobs']) == len(lp['text_offset']) == n
    assert [x['token'] for x in lp['content']] == lp['tokens'] and [x['logprob'] for x in lp['content']] == lp['token_logprobs']
    assert lp['token_logprobs'][0] is None and lp['top_logprobs'][0] is None
    assert all(x <= 0 for x in lp['token_logprobs'][1:])
    at = lp['text_offset']
    assert at == sorted(at) and at[0] == 0 and at[-1] <= len(text)
    for i, token in enumerate(lp['tokens'][:-1]):
        if '\ufffd' not in token:
            assert text[at[i]:at[i + 1]] == token


def test_prompt_alone(app):
    r = ask(app, PROMPT, 0)
    c = r['choices'][0]
    ids = ids_of(app, PROMPT)
    assert c['text'] == PROMPT and c['finish_reason'] == 'length'
    assert r['usage']['prompt_tokens'] == len(ids) and r['usage']['completion_tokens'] == 0
    check_shapes(c['logprobs'], PROMPT, len(ids))
    # each as the next token of the ids before it, which the sampler was made to take
    for k in (1, 2, len(ids) // 2, len(ids) - 1):
        one = post(app.port, '/v1/completions', {'prompt': ids[:k], 'max_tokens': 1, 'temperature': 0, 'logprobs': 2,
                                                 'logit_bias': {str(ids[k]): 1000}}).json()['choices'][0]['logprobs']
        assert abs(one['token_logprobs'][0] - c['logprobs']['token_logprobs'][k]) < 1e-5
        assert one['top_logprobs'][0].keys() == c['logprobs']['top_logprobs'][k].keys()


def test_against_the_logits(app, tmp_path):
    """Every log-probability is that of the logits which the tool writes, and those are compared with references elsewhere."""
    text = prose(700)
    ids = ids_of(app, text)
    with open(tmp_path / 'ids', 'w') as f:
        json.dump(ids, f)
    subprocess.run([program('vitriol-tool'), 'eval', '-m', MODEL, '--tokens', tmp_path / 'ids', '--logits', tmp_path / 'out.npy', '--ctx', '2048'],
                   env=clean_env(), check=True, capture_output=True)
    logits = np.load(tmp_path / 'out.npy').astype(np.float64)
    logp = logits - logits.max(1, keepdims=True)
    logp -= np.log(np.exp(logp).sum(1, keepdims=True))
    got = ask(app, text, 0, logprobs=5)['choices'][0]['logprobs']
    want = [logp[i - 1, ids[i]] for i in range(1, len(ids))]
    assert np.abs(np.array(got['token_logprobs'][1:]) - want).max() < 1e-4
    for i in range(1, len(ids)):
        best = np.sort(logp[i - 1])[::-1][:5]
        assert np.abs(np.sort([x['logprob'] for x in got['content'][i]['top_logprobs']])[::-1] - best).max() < 1e-4


def test_generation_is_the_same(app):
    for sampling in ({}, {'temperature': 1.0, 'seed': 7, 'repeat_penalty': 1.3}):
        plain = ask(app, PROMPT, 20, echo=False, **sampling)
        both = ask(app, PROMPT, 20, **sampling)
        assert both['choices'][0]['text'] == PROMPT + plain['choices'][0]['text']
        assert both['choices'][0]['finish_reason'] == plain['choices'][0]['finish_reason']
        n = both['usage']['prompt_tokens']
        assert n == plain['usage']['prompt_tokens'] and both['usage']['completion_tokens'] == plain['usage']['completion_tokens']
        got, want = both['choices'][0]['logprobs'], plain['choices'][0]['logprobs']
        assert got['token_logprobs'][n:] == want['token_logprobs']
        assert [x - len(PROMPT) for x in got['text_offset'][n:]] == want['text_offset']


def test_what_is_cached_is_computed_again(app):
    text = prose(600)
    ask(app, text, 0, echo=False, logprobs=None)
    first = ask(app, text, 0)
    again = ask(app, text, 0)
    assert first['choices'] == again['choices']
    assert again['usage']['prompt_tokens_details']['cached_tokens'] == 0
    # ... and what was evaluated is cached like any other prompt
    plain = ask(app, text, 1, echo=False, logprobs=None)
    assert plain['usage']['prompt_tokens_details']['cached_tokens'] > 0


def joined(s):
    """Choice -> text and the arrays of a stream put together."""
    out = {}
    for ev in s.json_events():
        for c in ev.get('choices', []):
            o = out.setdefault(c['index'], {'text': '', 'finish': None})
            o['text'] += c['text']
            o['finish'] = c['finish_reason'] or o['finish']
            for k, v in (c['logprobs'] or {}).items():
                o.setdefault(k, []).extend(v)
    return out


def test_streams(app):
    body = {'prompt': [PROMPT, ids_of(app, 'The sea'), 'x'], 'max_tokens': 8, 'temperature': 0, 'echo': True, 'logprobs': 1, 'n': 2}
    plain = post(app.port, '/v1/completions', body).json()
    s = Stream(app.port, '/v1/completions', body).run()
    got = joined(s)
    assert sorted(got) == [0, 1, 2, 3, 4, 5]
    for c in plain['choices']:
        o = got[c['index']]
        assert o['text'] == c['text'] and o['finish'] == c['finish_reason']
        assert {k: o[k] for k in c['logprobs']} == c['logprobs']


def test_killed_in_a_stream(app):
    text = prose(6000)
    want = ask(app, text, 12)['choices'][0]
    old = app.child('engine0')
    s = Stream(app.port, '/v1/completions', dict(LONG, prompt=text))
    n = 0
    for _ in s.events():
        n += 1
        if n == 300:
            app.kill('engine0')
    assert n > 1000
    got = joined(s)[0]
    assert got['text'] == want['text'] and got['finish'] == want['finish_reason']
    assert {k: got[k] for k in want['logprobs']} == want['logprobs']
    app.next_generation('engine0', old)
    app.wait_ready()


def test_killed_before_a_whole_answer(app):
    text = prose(6000)
    start = time.monotonic()
    want = ask(app, text, 12)
    took = time.monotonic() - start
    for part in (2, 4, 8, 16, 32):  # a machine that is suddenly faster must not make this test say nothing
        out = {}
        old = app.child('engine0')
        t = threading.Thread(target=lambda: out.update(ask(app, text, 12)), daemon=True)
        t.start()
        time.sleep(took / part)
        app.kill('engine0')
        t.join(120)
        app.next_generation('engine0', old)
        app.wait_ready()
        assert out['choices'] == want['choices'] and out['usage']['completion_tokens'] == 12
        if out['timings'].get('resumes'):
            return
    pytest.fail('the answer was always over before the kill')


def test_too_much_for_one_answer(app):
    body = {'prompt': [prose(6000)] * 6, 'max_tokens': 0, 'echo': True, 'logprobs': 20}
    r = post(app.port, '/v1/completions', body)
    assert r.status == 400 and r.json()['error']['param'] == 'logprobs'
    assert 'stream' in r.json()['error']['message']
